"""Other servers, measured beside ours: each started as its makers document it, on loopback alone.

`process.py` says what a peer is and runs one. What `scripts/peers` builds is in
.tools/peers; what is not there is left out, and the tables say so.
"""
