"""Stores bytes by key. Knows neither uploads nor HTTP: it takes and returns plain values.

`base.py` defines the store interface; `local/` implements it on disks, `s3/` in a bucket.
`machine.py` detects restarts of the machine and jumps of its clock. Imports `core`, `settings`,
`ingest` (the copy loop) and, for the catalog of a bucket, `db`.
"""
