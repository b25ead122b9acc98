"""Sluice: takes large uploads over bad networks and serves them at the speed of the disk.

Each package imports only those listed below it:

    run         processes, the composition root, metrics, the operator's commands
    web, deliver, protocols    Flask blueprints: pages and JSON, stored bytes, uploads
    http        what the blueprints share: errors as problem+json, headers, request bodies
    access      who uses the server: people, projects, keys and links
    video       what players need: indexes, posters, renditions
    uploads     the use cases: create, append, complete, cancel, expire
    storage, records    bytes by key; facts about uploads
    db          connections, transactions, tables, jobs and their worker
    ingest      from the socket to a file in large blocks
    settings    the options, and how their values are parsed
    core        values and rules
"""

__version__ = "0.1.0"
