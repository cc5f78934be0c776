"""Hosts without a run: check, trust, execute."""
