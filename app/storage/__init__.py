"""Bytes by key. Knows neither uploads nor HTTP: it gets plain values and gives no responses.

`base.py` says what a store must do; `local/` does it on disks. `machine.py` notices what restarts
and clocks do to unfinished files. Imports `ingest` (the copy loop), `request` and `domain`.
"""
