"""A bucket of an object store that speaks the S3 protocol.

`store.py` implements the store. A chunk passes through `range_writer.py` and `pieces.py`.
`assembly.py` makes one object of the pieces, with `lease.py` and `parts.py`. `catalog.py` has the
rows of files, `inventory.py` lists them and removes garbage.

`bucket.py` is the client: `Bucket`, with a method for each call. Below it: `caller.py` (retries and
errors), `signing.py` (botocore: signatures, and the calls that are rare), `connections.py`
(sockets, sendfile), `address.py`, `contents.py` (bytes and checksums), `reader.py` (an object as a
file). It sends a part for 0.37 CPU s/GB, and botocore for 1.63 (`python -m bench bucket_client`).
"""
