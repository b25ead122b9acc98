"""The client: a library and a command line. Stands alone: imports nothing else of `app`.

    from app.client import Client

    with Client("http://127.0.0.1:8000") as client:
        film = client.upload("film.mp4")
        client.fetch(film.id, "copy.mp4")

`client.py` is the library, `cli/` the command line. Below them: `uploader.py` and
`chunk_sender.py` (one file up), `many.py` and `bundle_sender.py`
(many), `downloader.py` (one file down),
`transport.py` (requests and their errors), `retry.py` and `pace.py` (when, how much, on how many
connections), `spans.py` (which bytes).
"""

from app.client.client import Client, ServerFacts
from app.client.downloader import Fetched
from app.client.errors import (
    ConnectionFailed,
    ContentMismatch,
    FileChanged,
    FileProblem,
    Interrupted,
    Refused,
    ServerUnreachable,
    SluiceError,
)
from app.client.local_file import LocalFile
from app.client.options import Options, load_options
from app.client.progress import Phase, Progress
from app.client.sources import find_files
from app.client.uploader import Uploaded

__all__ = [
    "Client",
    "ConnectionFailed",
    "ContentMismatch",
    "Fetched",
    "FileChanged",
    "FileProblem",
    "Interrupted",
    "LocalFile",
    "Options",
    "Phase",
    "Progress",
    "Refused",
    "ServerFacts",
    "ServerUnreachable",
    "SluiceError",
    "Uploaded",
    "find_files",
    "load_options",
]
