"""Runtime: processes, the composition root, metrics, the operator's commands.

`build.py` builds everything below the web layer from the settings, `factory.py` the web application
on top. Nothing is opened there: gunicorn's workers build their own services after forking.
"""
