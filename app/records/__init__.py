"""Facts about uploads. `base.py` says what is asked of them, `sql.py` keeps them in a database.

`memory.py` is the twin for tests; both pass one contract suite. Imports `request`
(stages) and `domain` only.
"""
