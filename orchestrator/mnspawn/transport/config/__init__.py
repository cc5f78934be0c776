"""How a host is reached: ssh_config and the inventory."""
