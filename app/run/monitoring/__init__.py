"""How the server is doing: /metrics, /status, /healthz, /readyz, and Server-Timing.

`instruments.py` names everything that is counted. Each process counts into a file of its own in
the folder of `folder.py`, and `reading.py` sums over all of them; these three know
prometheus-client and not Flask. `requests.py` counts each request; the others are blueprints.
"""
