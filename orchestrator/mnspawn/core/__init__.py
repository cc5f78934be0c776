"""The controller's decisions: machines without I/O or clock."""
