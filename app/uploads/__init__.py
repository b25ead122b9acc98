"""The use cases: create, append, complete, cancel, list, delete, expire.

No Flask, no sockets, no paths: `app/run/build.py` passes in a store, the records, a clock and a
source of ids. Start with `chunks.py`: every protocol's bytes go through its
`append` or `append_at_offset`. `service.py` has everything else that clients do, `completion.py`
makes a complete file visible.
"""
