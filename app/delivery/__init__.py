"""GET and HEAD of published files, in the kernel's hands where that is possible.

`http_range.py` and `conditional.py` decide without I/O; `sendfile.py` sends one piece,
`byteranges.py` several, and `accel.py` leaves it to nginx. Start with `blueprint.py`.
"""
