"""The media worker: `worker.py` claims jobs and runs their steps, of which nothing is known here.

`sweep.py` finds work in the records, `waking.py` says that there is some.
"""
