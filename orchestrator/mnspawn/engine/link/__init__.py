"""From a list of hosts to live sessions with their agents."""
