"""The JSON API: uploads under way, and videos. Its shapes are in `app/http/documents.py`."""
