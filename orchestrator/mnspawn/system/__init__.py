"""This process and its machine: signals, open files, threads, temporary folders."""
