"""The upload protocols: one blueprint each, independent of each other.

An adapter parses the request, calls `append` or `append_at_offset` of `app/uploads/chunks.py`, and
renders the result. A rule that two adapters need belongs in `app/uploads`. `forms/` holds the
dialects of libraries that post forms, `tus/` and `ietf/` the two protocols with a specification,
`batch.py` many whole files at once.
"""
