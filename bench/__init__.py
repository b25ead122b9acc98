"""What measures: `python -m bench` runs all of it, `python -m bench upload` one.

A benchmark is one file with a `BENCHMARK`: its name, the room it needs on the disk, a function that
takes a `Lab` (harness.py: folders, servers, rounds, samples) and returns tables, and one that draws
what the lab has measured. Name the file in `__main__.py`, put its markers into docs/performance.md,
and it is part of `make bench` and of `make bench-quick`; `--help` says what the latter leaves out.

The client's cost is kept out of the figures: bodies go from the page cache into the socket with
sendfile, and CPU time and memory (meter.py) are those of the server's own processes.
"""
