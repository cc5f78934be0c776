"""Hosts over paramiko, for servers and keys that asyncssh can't use."""
