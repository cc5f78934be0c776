"""Functions across hosts: what `mnspawn.spawn` and `mnspawn.multiprocessing` stand on."""
