"""Hosts over asyncssh, the default."""
