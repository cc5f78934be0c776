"""What can be learned of this host without a run."""
