"""Runs a program on a hostile file: it reads that file, writes into one folder, no more.

Needs neither root nor namespaces. `process` starts a program through `launcher`, which confines
itself by `landlock`, `seccomp` and limits, and then becomes the program. All but `process` runs
before each program, so it imports only what starts fast.
"""
