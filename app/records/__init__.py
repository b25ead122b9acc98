"""The facts about uploads, in a database. Imports `domain`, and `request` for its stages.

Start with `uploads.py`, whose calls the use cases make. `statements.py` has the SQL of every chunk,
`engine.py` the connections and transactions, `group_commit.py` what makes many writers share one.
"""
