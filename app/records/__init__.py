"""The records of uploads.

Start with `uploads.py`, which the use cases call. `statements.py` has the SQL that runs per chunk.
"""
