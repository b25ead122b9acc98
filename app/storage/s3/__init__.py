"""A bucket of an object store that speaks the S3 protocol.

`store.py` implements the store; start with `range_writer.py`, then `cells.py`: the path of a chunk.

`bucket.py` is the client: `Bucket`, with a method for each call. Below it: `signing.py` (addresses,
Signature Version 4), `contents.py` (bytes and checksums), `connections.py` (sockets, sendfile),
`caller.py` (retries, errors and XML), `reader.py` (an object as a file). It sends a part for 0.37
CPU s/GB, and botocore for 1.63 (`python -m bench bucket_client`).
"""
