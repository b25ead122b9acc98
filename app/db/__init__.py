"""The database: connections, transactions, tables, jobs and their worker, shared values.

`engine.py` opens it, `tables.py` defines the tables. The SQL of a subject is in its own file.
"""
