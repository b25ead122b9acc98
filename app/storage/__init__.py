"""Bytes by key. Knows neither uploads nor HTTP: it takes and returns plain values.

`base.py` says what a store must do; `local/` does it on disks. `machine.py` notices restarts of the
machine and jumps of its clock. Imports `ingest` (the copy loop), `request` and `domain`.
"""
