"""How a function and its arguments reach ranks: modules, pickles, and what is shared on this machine."""
