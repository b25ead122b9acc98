"""The database: connections, transactions, tables, jobs, leases, and what processes share.

`engine.py` opens it, `tables.py` has the tables. The SQL of a subject is in the subject's file.
"""
