"""The operator's commands: `flask --app wsgi uploads list`, `verify`, `disk-bench` and others.

`opening.py` finds the library that a command works on, and makes errors one line. The modules of
commands parse, call and print, by `printing.py`. `backup.py` also compares stored files with
their records; `disk.py` measures a folder.
"""
