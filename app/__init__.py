"""Sluice: takes large uploads over bad networks and serves them at the speed of the disk.

Each package imports only those listed below it:

    server      the processes: supervisor, gunicorn's settings and worker class, two workers
    factory     puts the web application together
    pages, api, delivery, protocols    Flask blueprints: HTML, JSON, stored bytes, uploads
    monitoring  metrics, Server-Timing, /status, health checks
    admin       the operator's commands
    http        what the blueprints share: errors as problem+json, headers, request bodies
    services    builds everything below from the settings
    settings    the options, and how their values are parsed
    identity    who uses the server: people, projects, keys and links
    media       what players need: indexes, pictures, other qualities
    uploads     the use cases: create, append, complete, cancel, expire
    storage, records    bytes by key; facts about uploads
    ingest      from the socket to a file in large blocks
    request     the slot of a running request, and the clock of its stages
    domain      values and rules
"""

__version__ = "0.1.0"
