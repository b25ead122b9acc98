"""Direct uploads: clients upload cells to the bucket, with URLs signed here.

A URL stores one part, with a fixed length and CRC32C, under a part number that the server itself
never uses. The part counts only once the bucket lists it. Each cell gets only one URL: an aborted
request may reach the bucket after the next one, and Garage then loses the part. A second request
for the cell must send its bytes to the server. Once the file is complete or has ended, its
multipart upload is gone and the URL no longer works.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.core.cells import (
    URL_SECONDS,
    Cell,
    CellOffer,
    CellTarget,
    Grid,
    Part,
    PromisedCell,
    StoredFile,
    direct_part_number,
)
from app.core.errors import CellNotStored, ChunkMismatch
from app.storage.base import BytesLost
from app.storage.s3.caller import MultipartGone
from app.storage.s3.cells import CellStore
from app.storage.s3.contents import ListedPart, PromisedBytes

LISTED_AT_ONCE = 1000
"""Most parts that a store lists in one response."""


class DirectCells:
    """Signs URLs for cells and checks the parts that the bucket has received."""

    def __init__(self, cells: CellStore) -> None:
        self._cells = cells

    def offers(self, key: str, promised: Sequence[PromisedCell]) -> list[CellOffer]:
        """Returns signed upload requests, valid for `URL_SECONDS`, for cells never offered before.

        Raises `ChunkMismatch` for spans that are not cells of the file, and `BytesLost`.
        """
        file = self._open_file(key)
        places = [_cell_of(file, each) for each in promised]
        multipart = self._cells.multipart(file)
        numbers = {place.number for place in places}
        new = self._cells.catalog.offer(key, numbers, seconds=URL_SECONDS)
        offers = []
        for place, each in zip(places, promised, strict=True):
            if place.number not in new:
                offers.append(CellOffer())
                continue
            number = direct_part_number(place.number)
            stored = PromisedBytes(each.span.length, each.crc32c)
            url = self._cells.bucket.presign_part(
                multipart.name, multipart.id, number, stored, URL_SECONDS
            )
            # Clients send Content-Length automatically, and browsers do not let scripts set it.
            headers = {
                name: text for name, text in stored.headers.items() if name != "content-length"
            }
            offers.append(CellOffer(target=CellTarget(url, headers)))
        return offers

    def accept(self, key: str, promised: Sequence[PromisedCell]) -> None:
        """Record cells as stored if the bucket has the promised bytes.

        Raises `CellNotStored` unless it has all of them, `ChunkMismatch` and `BytesLost`.
        """
        file = self._open_file(key)
        places = [_cell_of(file, each) for each in promised]
        listed = self._listed(file, places)
        parts = []
        for place, each in zip(places, promised, strict=True):
            found = listed.get(direct_part_number(place.number))
            wanted = (each.span.length, each.crc32c)
            if found is None or (found.length, found.stored.crc32c) != wanted:
                raise CellNotStored(f"The bucket does not have the cell at {each.span.start}.")
            parts.append(Part(place.number, found.number, found.length, found.stored, through=0))
        if not self._cells.catalog.place(key, parts):
            raise BytesLost(key)

    def _listed(self, file: StoredFile, places: Sequence[Cell]) -> dict[int, ListedPart]:
        """Returns the bucket's parts for these cells, and for some cells between them."""
        if file.multipart is None or not places:
            return {}
        name, multipart_id, found = file.multipart.name, file.multipart.id, dict[int, ListedPart]()
        try:
            for first, last in runs(direct_part_number(place.number) for place in places):
                at_once = min(LISTED_AT_ONCE, last - first + 1)
                for part in self._cells.bucket.list_parts(
                    name, multipart_id, first=first, at_once=at_once
                ):
                    found[part.number] = part
                    if part.number >= last:
                        break
        except MultipartGone as error:
            raise BytesLost(file.key) from error
        return found

    def _open_file(self, key: str) -> StoredFile:
        """Returns the file if it accepts cells; raises `BytesLost` otherwise.

        If the length was declared late, the grid may differ from what clients expect: `BytesLost`.
        """
        file = self._cells.catalog.require_open(key)
        if file.length is None or file.grid != Grid.of(file.length):
            raise BytesLost(key)
        return file


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Groups part numbers into runs that are listed together: first and last of each, in order.

    A gap of a page or more ends a run, so there is at most one request per number.
    """
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number - found[-1][1] < LISTED_AT_ONCE:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def _cell_of(file: StoredFile, promised: PromisedCell) -> Cell:
    for cell in file.grid.cells(promised.span):
        whole = file.cell(cell.number)
        if whole.span == promised.span:
            return whole
        break
    raise ChunkMismatch(f"The {promised.span.length} bytes at {promised.span.start} are no cell.")
