"""Who uses the server: people, projects, keys and links, and what is told about their doings.

Knows nothing of HTTP. `callers.py` finds out who sends a request; what they may do is in
`app/core/access.py`.
"""
