"""Bytes by key. Knows neither uploads nor HTTP: it gets plain values and gives no responses.

`base.py` says what a store must do; `local.py` does it on disk. Imports `ingest` (the copy loop)
and `domain` (ranges, errors).
"""
