"""IETF resumable uploads: draft-ietf-httpbis-resumable-upload-12 and its earlier versions.

A request to `/resumable/` with `Upload-Complete` makes an upload resource, whose URL is told early
in a 104 interim response. There the client asks for the offset (HEAD), sends what is missing
(PATCH) and cancels (DELETE). Devices in the field speak earlier drafts; what those have otherwise
stands in one table, `versions.py`. Start with `blueprint.py`.
"""
