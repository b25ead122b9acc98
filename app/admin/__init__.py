"""The operator's commands: `flask --app wsgi uploads list`, `verify`, `disk-bench` and others.

`commands.py` is all that knows Flask: it parses, calls and prints. `verify.py` compares stored
files with their records; `disk_bench.py` measures a folder, `disk_table.py` shows what it found.
"""
