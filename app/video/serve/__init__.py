"""Metadata of videos, and the files that players load.

`facts.py` is the stored metadata, `folder.py` stores the files, `library.py` and `playlists.py`
serve them, `ladder.py` and `renditions.py` offer renditions.
"""
