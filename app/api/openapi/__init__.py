"""/openapi.json: the description of the JSON API for programs (OpenAPI 3.1).

Written by hand where it says what we promise; taken from the code where that knows better: the
states, the problem codes and their statuses, the limits. The tests hold it against the routes and
against real answers. Start with `document.py`.
"""
