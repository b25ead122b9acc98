"""What players need of a published file, and of one that is still arriving.

Films are indexed, not processed: see `index`. ffmpeg does only what an index cannot.
"""
