"""The records of uploads, and of their objects in a bucket.

Start with `uploads.py`, which the use cases call. `statements.py` has the SQL that runs per chunk.
"""
