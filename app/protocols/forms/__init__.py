"""Libraries that send chunks as forms.

`upload.py` is the URL that most of them share. Libraries with questions or answers of their own, or
whose fields could be taken for another's, have a URL and a blueprint of their own. What they share:
`dialects.py` (what the fields say), `chunk_form.py` (reading the form), `staged_chunks.py` (chunks
whose place is known only after their bytes) and `numbered.py` (Resumable.js and its heirs).
"""
