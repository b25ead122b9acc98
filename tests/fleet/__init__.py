"""Several nodes that share a database and a bucket, and the servers that they need.

`make test` runs each attack in a short form; `make chaos` in a long one.
"""
