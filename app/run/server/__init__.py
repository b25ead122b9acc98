"""The processes: a supervisor, gunicorn with its workers, a background and a media worker.

`python -m app.run.server.supervisor` runs all of them; start there. `gunicorn_conf.py` and
`gunicorn_worker.py` are gunicorn's settings and worker class, `background_worker.py` expires,
recovers and hashes, `media_worker.py` makes what players need, `node_worker.py` tells the nodes
of a fleet about each other; the other modules are tools of these. May import everything but the
factory.
"""
