"""Libraries that send chunks as forms.

`dialects.py` says what their fields mean, `chunk_form.py` reads the form and stores its chunks.
`blueprints.py` has the URLs; `filepond.py` is a protocol of its own around whole files and chunks.
"""
