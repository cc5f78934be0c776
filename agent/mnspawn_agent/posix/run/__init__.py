"""One pod of a run on this host: from its plan to proof that nothing of it is left."""
