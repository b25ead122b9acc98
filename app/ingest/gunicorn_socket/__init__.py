"""Takes a request body straight from gunicorn's socket. The only package that knows its internals.

gunicorn's own `wsgi.input` copies each byte three times and waits for a silent client without end.
`take_over.py` takes the socket instead and says how; what then reads it is `body.py` (known length)
or `chunked_body.py`. `connection.py` is what else is done with a client's connection. Imports
gunicorn and the rest of `ingest`.
"""
