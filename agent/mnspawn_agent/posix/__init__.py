"""All of the agent that touches the system, in rooms: link, host, run, files."""
