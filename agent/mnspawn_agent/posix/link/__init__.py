"""The agent's links: their loop, and one server for each kind of controller."""
