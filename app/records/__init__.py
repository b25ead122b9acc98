"""The facts about uploads, in a database. Imports `domain`, and `request` for its stages.

Start with `uploads.py`, which the use cases call. `statements.py` has the SQL that runs for every
chunk, `engine.py` connections and transactions, `group_commit.py` lets many writers share one.
"""
