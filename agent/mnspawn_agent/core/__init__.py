"""The agent's decisions: machines without I/O or clock."""
