"""Libraries that send chunks as forms.

`dialects.py` says what their fields mean, `chunk_form.py` reads the form and stores its chunks.
`upload.py` is the URL that most of them share. Libraries with requests or responses of their own,
or whose fields could be confused with another's, have their own URL in `libraries.py`.
"""
