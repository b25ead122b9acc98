"""tus 1.0.0 with all of its extensions, at /tus/.

The text is at https://tus.io/protocols/resumable-upload; comments here name its sections.
`blueprint.py` answers requests; `headers.py` reads and writes header values; `checksum.py` finds
the digest of a body before or behind it.
"""
