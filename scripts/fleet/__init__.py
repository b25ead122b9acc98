"""A fleet on one machine: the servers that several Sluice nodes share, and the nodes.

`make fleet` runs it for development; the tests start the same servers. It imports the
standard library alone. Start reading in `__main__.py`.
"""
