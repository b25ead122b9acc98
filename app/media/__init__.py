"""What players need of a published file, and of one that is still arriving.

Films are indexed, not processed: see `index`. ffmpeg does only what an index cannot. `film` is what
is known about a film, `steps` and `renditions` make what players load, `playback` finds it for
them, and `jobs` is the worker that runs the steps. `services.py` puts all of it together.
"""
