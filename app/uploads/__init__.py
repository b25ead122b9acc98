"""The use cases: create, append, complete, cancel, list, delete, expire.

No Flask, no sockets, no paths: they work on a store, the records, a clock and a source of ids,
which `app/services.py` hands in. Start with `service.py`; everything there is `append`.
"""
