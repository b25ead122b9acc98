"""From the client's socket to a file, in large blocks.

Knows WSGI and file descriptors, but neither Flask nor uploads. Imports `core` only.
Start with `source.py` (what a body is), then `copy.py` (the loop); only `gunicorn_socket` knows
gunicorn's internals.
"""
