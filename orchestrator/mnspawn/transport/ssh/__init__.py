"""What the transports that speak SSH themselves share."""
