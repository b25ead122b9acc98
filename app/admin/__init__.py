"""The operator's commands: `flask --app wsgi uploads list`, `verify`, `disk-bench` and others.

Only `commands.py`, `job_commands.py` and `disk_commands.py` know Flask: they parse, call and print,
by `printing.py`. `verify.py` compares stored files with their records; `disk_bench.py` measures a
folder, `disk_table.py` shows what it found.
"""
