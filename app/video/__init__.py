"""Makes and serves the files that players need, of published files and of active uploads.

Videos are indexed, not processed: see `index`. ffmpeg does only what an index cannot: see `make`.
`serve` is for the web application: facts, playlists, files and offered renditions. `make` imports
`serve`, and `serve` imports `index`.
"""
