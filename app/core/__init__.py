"""The core: values and rules of uploads, using only the standard library.

No clocks, no id generation, no I/O: time and randomness are arguments.
Start with `upload.py`, then `lifecycle.py`.
"""
