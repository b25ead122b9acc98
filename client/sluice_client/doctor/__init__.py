"""Finds out what stands between a client and its server, and what it does to uploads.

`examination.py` runs the checks; `connection_checks.py` and `body_checks.py` are the checks, over
bare connections (`bare_http.py`), as a library that follows HTTP's rules would hide what is asked.
"""
