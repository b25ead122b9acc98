"""Libraries that send chunks as forms, one module each; none knows another.

`upload.py` is the URL that most of them share. Those with questions or answers of their own, or
whose fields could be taken for another's, have a URL and a blueprint of their own.
"""
