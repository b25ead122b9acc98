"""Who uses the server: people, projects, keys and links, webhooks and the audit log.

One file a subject, with its rows, rules, use cases and SQL; a use case writes its audit entry.
Knows nothing of HTTP. `services.py` builds what a process needs. `callers.py` finds out who sends a
request; what they may do is in `app/core/access.py`.
"""
