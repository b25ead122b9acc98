"""Runs a program on a hostile file: it can only read that file, and write to one folder.

Needs neither root nor namespaces. `process` starts a program through `launcher`, which confines
itself with `landlock`, `seccomp` and limits, and then executes the program. All modules but
`process` run before each program, so they only import modules that load fast.
"""
