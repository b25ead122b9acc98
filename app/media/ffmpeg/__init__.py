"""ffmpeg and ffprobe: every run goes through `program.py`, confined by `app/media/sandbox`."""
