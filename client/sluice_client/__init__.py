"""The client of Sluice: a library and a command line. Knows the server by HTTP alone.

    from sluice_client import Client

    with Client("http://127.0.0.1:8000") as client:
        film = client.upload("film.mp4")
        client.fetch(film.id, "copy.mp4")

`client.py` is the library, `cli/` the command line. Below them: `uploader.py` and
`chunk_sender.py` (one file up), `many.py` and `bundle_sender.py` (many), `downloader.py` (one file
down), `renditions.py` (which are made first), `transport.py` (requests and their errors),
`retry.py` and `pace.py` (when, how much, on how many connections), `spans.py` and `play_order.py`
(which bytes).
"""

from sluice_client.client import Client, ServerFacts
from sluice_client.downloader import Fetched
from sluice_client.errors import (
    ConnectionFailed,
    ContentMismatch,
    FileChanged,
    FileProblem,
    Interrupted,
    KeyRefused,
    Refused,
    RenditionFailed,
    ServerUnreachable,
    SluiceError,
)
from sluice_client.local_file import LocalFile
from sluice_client.options import Options, load_options
from sluice_client.progress import Phase, Progress
from sluice_client.sources import find_files
from sluice_client.uploader import Uploaded

__all__ = [
    "Client",
    "ConnectionFailed",
    "ContentMismatch",
    "Fetched",
    "FileChanged",
    "FileProblem",
    "Interrupted",
    "KeyRefused",
    "LocalFile",
    "Options",
    "Phase",
    "Progress",
    "Refused",
    "RenditionFailed",
    "ServerFacts",
    "ServerUnreachable",
    "SluiceError",
    "Uploaded",
    "find_files",
    "load_options",
]
