"""What is counted while the server runs, summed up over all of its processes.

Knows prometheus-client, and neither Flask nor the services; may import `app.ingest` and
`app.domain`. Start with `instruments.py`. `folder.py` is where the processes put their counts,
`reading.py` gets them out again.
"""
