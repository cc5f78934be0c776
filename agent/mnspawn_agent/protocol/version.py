"""The protocol's version: both sides must have the same, which the archive's digest already makes sure of."""

PROTOCOL = 1
OLDEST_PYTHON = (3, 6)
