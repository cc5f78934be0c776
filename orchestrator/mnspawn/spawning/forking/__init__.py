"""Start method `fork`: ranks that are copies of the caller, on this machine only."""
