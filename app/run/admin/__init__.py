"""The operator's commands: `flask --app wsgi uploads list`, `verify`, `disk-bench` and others.

`opening.py` finds the library that a command works on, prints errors in one line, and has shared
output functions. The modules of commands parse, call and print. `backup.py` also compares stored
files with their records; `disk.py` measures a folder.
"""
