"""Virtual files, and the files that contain their bytes, while both are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.core.errors import NotMade
from app.core.playback import Made
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId
from app.video.index.virtual_file import VirtualFileWriter
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.facts import PLAY_FILE
from app.video.serve.library import MediaLibrary, VirtualPart
from app.video.serve.playlists import Playlists
from app.video.serve.source import REMUXED, MediaSource, reader
from tests.derived import place
from tests.storage.stores import local_store
from tests.video.world import World


@dataclass(frozen=True, slots=True)
class ChangedMeanwhile(DerivedFiles):
    """Another process changes files right after they were looked up."""

    changes: list[Callable[[], None]] = field(default_factory=list)

    def find_all(self, upload_id: UploadId, names: Sequence[str]) -> Mapping[str, Made]:
        """As always; then the next change happens."""
        found = DerivedFiles.find_all(self, upload_id, names)
        if self.changes:
            self.changes.pop(0)()
        return found


@dataclass
class Player:
    """What plays one video."""

    files: DerivedFiles
    library: MediaLibrary
    video: Upload
    original: Path
    changes: list[Callable[[], None]]

    def index(self, content: bytes) -> None:
        """Remux the video, and index that."""
        place(self.files, self.video.id, REMUXED, content)
        with self.files.writing(self.video.id, PLAY_FILE) as target:
            writer = VirtualFileWriter(target)
            writer.extend([b"index of ", ByteRange(0, len(content))])
            writer.finish()

    def play(self) -> bytes:
        """The whole video as one file."""
        return content_of(self.library.play_file(self.video))


def content_of(part: VirtualPart) -> bytes:
    with closing(part.file), closing(part.open_source()) as source:
        pieces = part.pieces(ByteRange(0, part.span.length))
        return b"".join(
            reader(source)(piece.start, piece.length) if isinstance(piece, ByteRange) else piece
            for piece in pieces
        )


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    with closing(World(tmp_path)) as world:
        store = local_store(tmp_path / "in", tmp_path / "out")
        files = world.files
        changing = ChangedMeanwhile(
            database=files.database,
            objects=files.objects,
            scratch=files.scratch,
            clock=files.clock,
        )
        library = MediaLibrary(
            uploads=world.uploads,
            media=world.media,
            jobs=world.jobs,
            source=MediaSource(store, changing),
            files=changing,
            playlists=Playlists(changing),
        )
        video = world.uploads.get(world.publish())
        original = tmp_path / "out" / video.id
        original.parent.mkdir()
        yield Player(files, library, video, original, changing.changes)


def test_a_new_index_is_sent_with_its_own_source(player: Player) -> None:
    player.index(b"old")
    player.changes.append(lambda: player.index(b"newer"))
    assert player.play() == b"index of newer"


def test_an_index_made_since_it_was_looked_up_is_not_sent_with_another_source(
    player: Player,
) -> None:
    player.original.write_bytes(b"original")
    player.changes.append(lambda: player.index(b"remuxed"))
    with pytest.raises(NotMade):
        player.play()
    assert player.play() == b"index of remuxed"


def test_an_old_index_is_not_sent_with_a_newer_source(player: Player) -> None:
    player.index(b"old")
    part = player.library.play_file(player.video)
    player.index(b"newer")
    with pytest.raises(NotMade, match="indexed again"):
        content_of(part)
