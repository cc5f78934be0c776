"""How a function and its arguments travel to ranks: modules, pickles, and what is shared on this machine."""
