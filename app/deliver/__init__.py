"""GET and HEAD of published files, sent by the kernel where possible.

`conditional.py` evaluates headers without I/O, `bodies.py` has the response bodies. Start with
`media.py`.
"""
