"""The names of the library, which `sluice_client` offers as its own."""

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
