"""The messages between controller and agent. Shared by both, pure: no I/O, no clock."""
