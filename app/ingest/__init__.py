"""From the client's socket to a file, in large blocks.

Knows WSGI and file descriptors, but neither Flask nor uploads. Start with `source.py` (what a body
is), then `copy.py` (the loop). `gunicorn_socket.py` and `connection.py` know gunicorn's internals.
"""
