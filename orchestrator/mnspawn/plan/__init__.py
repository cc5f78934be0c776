"""What a run will start, decided before anything starts: layout, environment contracts, launch plan. Pure."""
