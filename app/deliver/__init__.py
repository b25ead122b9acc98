"""GET and HEAD of published files, sent by the kernel where possible.

`conditional.py` decides without I/O, `bodies.py` has the bodies of responses. Start with
`media.py`.
"""
