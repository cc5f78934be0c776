"""Bootstrapping: how the agent gets onto a host that has only sshd and a Python."""
