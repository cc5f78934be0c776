"""Throw-away hosts on this machine, for trying things out."""
