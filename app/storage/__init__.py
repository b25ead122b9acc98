"""Stores bytes by key. Knows neither uploads nor HTTP: it takes and returns plain values.

`base.py` defines the store interface; `local/` implements it on disks. `machine.py` detects
restarts of the machine and jumps of its clock. Imports `ingest` (the copy loop), `request` and
`domain`.
"""
