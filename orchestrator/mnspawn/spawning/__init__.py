"""Functions across hosts: start them (`start`), follow their ranks (`ranks`), get their results (`context`)."""
