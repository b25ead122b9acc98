"""Sluice: takes large uploads over bad networks and gives them back at the speed of the disk.

Read downwards; each package imports only what stands below it:

    serve, worker, factory    the processes and the wiring of the web application
    web, api, delivery, protocols    Flask blueprints: pages, JSON, stored bytes, upload protocols
    admin       the operator's commands
    wire        what the blueprints share: errors as problem+json, headers, request bodies
    services    builds everything below from the settings
    metrics     what is counted while the server runs, over all of its processes
    uploads     the use cases: create, append, complete, cancel, expire
    storage, records    bytes by key; facts about uploads
    ingest      from the socket to a file in large blocks
    domain, settings    values and rules; the options
"""

__version__ = "0.1.0"
