"""The JSON API: unfinished uploads, and videos. Its shapes are in `app/http/documents.py`."""
