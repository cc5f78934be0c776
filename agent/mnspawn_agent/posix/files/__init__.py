"""What the agent keeps on disk for a run."""
