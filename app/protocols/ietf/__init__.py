"""IETF resumable uploads: draft-ietf-httpbis-resumable-upload and its earlier versions.

A request to `/resumable/` with `Upload-Complete` creates an upload resource; a 104 interim response
announces its URL early. There the client gets the offset (HEAD), sends the missing bytes (PATCH)
and cancels (DELETE). Devices in the field speak earlier drafts; `interop.py` has the table of their
differences. Start with `blueprint.py`.
"""
