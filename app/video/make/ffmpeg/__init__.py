"""ffmpeg and ffprobe: every run goes through `program.py`, confined by `app/video/make/sandbox`."""
