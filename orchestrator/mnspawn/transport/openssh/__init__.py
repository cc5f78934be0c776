"""Hosts over the system's own ssh."""
