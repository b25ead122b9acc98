"""The steps of the media worker, one file each: the first look at a film, pictures, sound, text.

They share `tools.py`, what they work with, and `job_errors.py`, how they fail. Other qualities are
in `app/media/renditions`.
"""
