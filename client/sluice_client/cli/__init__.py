"""The command line: `main.py` and one file for each kind of command; `display.py` shows progress.

Results go to standard output, everything else to standard error.
"""
