"""Monitoring: /metrics, /status, /healthz, /readyz, and Server-Timing.

`instruments.py` defines all metrics. Each process counts into a file of its own in the folder of
`folder.py`; `instruments.py` also adds all of them up. These two know nothing of Flask.
`requests.py` counts each request, and `probes.py` and `status.py` have the blueprints.
"""
