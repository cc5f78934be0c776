"""How what ranks send back becomes values and exceptions."""
