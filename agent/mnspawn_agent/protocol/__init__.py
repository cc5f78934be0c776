"""What controller and agent say to each other. Shared by both, pure: no I/O, no clock."""
