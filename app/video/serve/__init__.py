"""Metadata of videos, and the files that players load.

`facts.py` is the stored metadata, `folder.py` stores the files, `library.py` finds them,
`renditions.py` offers renditions.
"""
