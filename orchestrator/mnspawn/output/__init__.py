"""Where a run's output and events go: the console, files, JSON lines."""
