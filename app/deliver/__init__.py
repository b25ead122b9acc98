"""GET and HEAD of published files, sent by the kernel where possible.

`http_range.py` and `conditional.py` decide without I/O; `sendfile.py` sends one piece,
`byteranges.py` several, and `accel.py` leaves it to nginx. Start with `blueprint.py`.
"""
