"""Reads request bodies directly from gunicorn's socket. The only package that uses its internals.

gunicorn's own `wsgi.input` copies each byte three times and waits forever for a silent client.
`take_over.py` takes over the socket and explains how; `body.py` (known length) or `chunked_body.py`
then reads it. `connection.py` has everything else about a client's connection. Imports gunicorn and
the rest of `ingest`.
"""
