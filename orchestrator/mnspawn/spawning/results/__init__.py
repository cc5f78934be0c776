"""What ranks send back: from the bytes of a result stream to values and exceptions."""
