"""Runs that others started: find, follow, take over, end."""
