"""The upload protocols: one blueprint each, none knows another.

An adapter parses the request, calls `Chunks.append`, and prints the outcome. A rule that two
adapters need belongs in `app/uploads`. `forms/` holds the dialects of libraries that post forms,
`tus/` and `ietf/` the two protocols with a specification, `batch.py` many whole files at once.
"""
