"""The options of a run: their table, the kinds of their values, the settings file, and how they become a request."""
