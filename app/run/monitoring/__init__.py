"""Monitoring: /metrics, /status, /healthz, /readyz, and Server-Timing.

`instruments.py` defines all metrics. Each process counts into a file of its own in the folder of
`folder.py`, and `reading.py` aggregates all of them; these three use prometheus-client and not
Flask. `requests.py` counts each request; the others are blueprints.
"""
