"""Whether a server does what tus 1.0.0 and the IETF draft on resumable uploads ask for.

The tests speak to any server over HTTP and import nothing of ours: `pytest tests/conformance --url
http://host:port/files/` for tus, `--resumable-url` for the draft. Without an address they start our
own server. A case of an extension that a server does not announce is skipped; `test_own_server.py`
holds that ours announces everything. Start with `wire.py`, then `tus_client.py` and
`draft_client.py`; `python -m tests.conformance.table` compares servers.
"""
