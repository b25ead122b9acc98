"""What is known about a video, and what players load of it.

`facts.py` is what is kept, `folder.py` names the files, `library.py` finds them, `renditions.py`
offers others.
"""
