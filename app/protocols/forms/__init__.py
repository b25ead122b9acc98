"""Libraries that send chunks as forms.

`upload.py` is the URL that most of them share. Libraries with requests or responses of their own,
or whose fields could be confused with another's, have their own URL and blueprint. Shared code:
`dialects.py` (meaning of the fields), `chunk_form.py` (reading the form), `staged_chunks.py`
(chunks whose place is known only after their bytes) and `numbered.py` (Resumable.js and its heirs).
"""
