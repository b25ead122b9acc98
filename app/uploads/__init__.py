"""The use cases: create, append, complete, cancel, list, delete, expire.

No Flask, no sockets, no paths: `app/run/build.py` passes in a store, the records, a clock and a
source of ids. Start with `chunks.py`: the bytes of every protocol go through its `append` or
`append_at_offset`. `service.py` has all other client operations, `completion.py` publishes
complete files.
"""
