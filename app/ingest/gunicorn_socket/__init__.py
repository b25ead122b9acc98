"""Takes a request body straight from gunicorn's socket. The only package that knows its inside.

gunicorn hands the application `wsgi.input`, a `Body` over a `LengthReader` over a
`SocketUnreader`. Reading through them copies each byte three times and waits for a silent client
without end. On plain HTTP/1.1 the socket can be taken over instead (`take_over.py`):

- the bytes that came with the headers are in the unreader's buffer and come first;
- what in there belongs to the next, pipelined request is given back;
- the reader's length is set to 0, or a chunked reader's parser to None, so that gunicorn sees a
  body read to its end and keeps the connection alive;
- if the body is not read to its end after all, `Body.failed` makes gunicorn close the connection.

`body.py` is what then reads a body of told length, `chunked_body.py` one in the chunked coding;
`connection.py` is what else is done with a client's connection.

These are private names of gunicorn 27. A test against the pinned release guards them; where
anything looks different, `take_over` declines and the caller reads through `wsgi.input`.
"""
