"""The client of Sluice: a library and a command line. Knows the server by HTTP alone.

    from sluice_client import Client

    with Client("http://127.0.0.1:8000") as client:
        film = client.upload("film.mp4")
        client.fetch(film.id, "copy.mp4")

`client.py` is the library, `cli/` the command line. Below them: `uploader.py` and
`chunk_sender.py` (one file up), `stream_upload.py` (a pipe up), `many.py` and `bundle_sender.py`
(many), `downloader.py` (one file down), `renditions.py` (which are made first), `transport.py`
(requests and their errors), `retry.py` and `pace.py` (when, how much, on how many connections),
`spans.py` and `play_order.py` (which bytes).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluice_client.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Import the library at its first use: `__main__` must run before the imports take a while."""
    public = import_module("sluice_client.public")
    if name in public.__all__:
        return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
