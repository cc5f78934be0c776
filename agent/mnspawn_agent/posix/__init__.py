"""All of the agent that touches the system."""
