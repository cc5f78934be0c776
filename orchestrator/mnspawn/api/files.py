"""Follows files on hosts, as `mnspawn tail HOSTS:PATTERN` does."""

from mnspawn.engine.look.tailing import Followed, Tail

__all__ = ["Followed", "Tail"]
