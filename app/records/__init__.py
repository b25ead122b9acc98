"""The facts about uploads, and about what a bucket holds of them.

Start with `uploads.py`, which the use cases call. `statements.py` has the SQL of every chunk.
"""
