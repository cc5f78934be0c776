"""What the agent says and hears: its loop, and one server for each kind of controller."""
