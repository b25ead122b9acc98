"""The use cases: create, append, complete, cancel, list, delete, expire.

No Flask, no sockets, no paths: they work on a store, the records, a clock and a source of ids,
which `app/services.py` passes in. Start with `chunks.py`: every protocol's bytes go through its
`append` or `append_at_offset`. `service.py` has what clients do besides, `completion.py` makes a
complete file visible.
"""
