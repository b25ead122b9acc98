"""Benchmarks: `python -m bench` runs all of them, `python -m bench upload` one.

`cases/` holds one benchmark a file, each with a `BENCHMARK`: its name, the disk space it needs, a
function that takes a `Lab` and returns tables, and one that draws what the lab has measured. Add a
file there and markers for its tables in bench/RESULTS.md, and it is part of `make bench` and
`make bench-quick`. `lib/` is what they share: start with `lib/harness.py`. `peers/` are the servers
and programs that ours is compared with.

The client's cost stays out of the figures: bodies go from the page cache into the socket with
sendfile, and CPU time and memory (lib/meter.py) are those of the server's own processes.
"""
