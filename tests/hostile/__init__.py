"""Attacks on a running server, and what a bad network, a bad disk and a bad clock do to it.

`make test` runs each in a short form; `make attack` in a long one, which takes root for some.
"""
