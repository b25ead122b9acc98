"""tus 1.0.0 with all of its extensions, at /tus/.

The text is at https://tus.io/protocols/resumable-upload; comments here name its sections.
`blueprint.py` answers requests, `headers.py` parses and prints header values, `checksum.py` finds
the digest before or after a body.
"""
