"""The operator's commands: `flask --app wsgi uploads list`, `verify`, `disk-bench` and others.

`opening.py` finds the library that a command works on, and makes errors one line. The modules of
commands parse, call and print, by `printing.py`. `verify.py` compares stored files with their
records; `disk_bench.py` measures a folder, `disk_table.py` shows what it found.
"""
