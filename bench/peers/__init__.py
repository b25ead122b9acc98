"""What ours is compared with: other servers as their makers document them, `dd` and `cp`.

`process.py` says what a peer is and runs one, on loopback alone. `uploads.py` and `downloads.py`
list who takes part in which benchmark, `senders.py` what people run to send a file. What
`scripts/peers` builds is in .tools/peers; what is missing is left out, and the tables say so.
"""
