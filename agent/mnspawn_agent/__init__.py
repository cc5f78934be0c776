"""The part of mnspawn that runs on a host: the standard library only, Python 3.6 and newer."""
