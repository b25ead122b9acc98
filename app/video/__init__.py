"""What players need of a published file, and of one that is still arriving.

Videos are indexed, not processed: see `index`. ffmpeg does only what an index cannot: see `make`.
`serve` is what the web reads: facts, playlists, files and what is offered. `make` imports `serve`,
and `serve` imports `index`.
"""
