"""The core: values and rules of uploads, on the standard library alone.

No clocks, no ids made here, no I/O: time and randomness are arguments.
Start with `upload.py`, then `lifecycle.py`.
"""
