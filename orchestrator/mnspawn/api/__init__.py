"""All that the command line and Python callers may use of the controller."""
