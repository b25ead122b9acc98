"""The JSON API: uploads under way, and videos. Start with `documents.py`, the shapes it gives."""
