"""The processes: a supervisor, gunicorn with its workers, and a background worker.

`python -m app.run.server.supervisor` runs all of them; start there. `gunicorn_conf.py` and
`gunicorn_worker.py` are gunicorn's settings and worker class, `background_worker.py` expires,
recovers, hashes and makes files for players, `node_worker.py` reports this node
to the others of a fleet; the other modules support these. May import everything but the factory.
"""
