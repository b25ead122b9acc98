"""From the client's socket to a file, in large blocks.

Knows WSGI and file descriptors, but neither Flask nor uploads. Imports `request` and `domain` only.
Start with `source.py` (what a body is), then `copy.py` (the loop); `gunicorn_socket` is the one
package that knows gunicorn's internals.
"""
