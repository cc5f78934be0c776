"""Start method `fork`: ranks are copies of the caller, on this machine only."""
