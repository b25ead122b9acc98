"""What the benchmarks share. Start with `harness.py`: folders, servers, rounds, samples.

`client.py` sends and receives at little cost, `meter.py` measures the server's processes,
`samples.py` holds what was measured, `report.py` prints it and `plot.py` draws it.
"""
