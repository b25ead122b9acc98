"""A bucket of an object store that speaks the S3 protocol. Imports `core`, `ingest` and `local`.

`bucket.py` is the client: `Bucket`, with a method for each call. Below it: `address.py` (bucket
name and URL), `contents.py` (bytes and checksums), `signing.py` (Signature Version 4),
`connections.py` (sockets, sendfile), `caller.py` (retries), `answers.py` (errors and XML),
`reader.py` (an object as a file). It sends a part for 0.37 CPU s/GB, and botocore for 1.63
(`python -m bench bucket_client`).
"""
