"""Comparisons of mnspawn with public tools, both measured in turn in one run: the ratio counts, not the seconds."""
