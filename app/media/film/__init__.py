"""What is known about a film, and where its media and the files made of it are.

`probe.py` and `app/media/index` find out, `facts.py` is what is kept; `folder.py` names the files.
"""
