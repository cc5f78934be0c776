"""Host keys, known_hosts, private key files and certificates."""
