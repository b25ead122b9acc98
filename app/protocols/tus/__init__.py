"""tus 1.0.0 with all of its extensions, at /tus/.

The text is at https://tus.io/protocols/resumable-upload; comments here name its sections.
`blueprint.py` handles requests; `headers.py` parses and formats header values, and finds the digest
before or after a body.
"""
