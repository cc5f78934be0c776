"""How the agent comes to a host that has only sshd and a Python."""
