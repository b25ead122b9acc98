"""What the table says of files in a bucket, on both kinds of database."""

from __future__ import annotations

import pytest

from app.core.playback import Made, Outdated
from app.core.upload import UploadId
from app.db.engine import Database
from app.video.serve.bucket_folder import READ_FOR, UNFINISHED_FOR, MadeFileRecords
from tests.records.making import NOW, at

VIDEO, OTHER = UploadId("ab" * 16), UploadId("cd" * 16)
MARK = "rungs/720/made-by"


@pytest.fixture
def files(database: Database) -> MadeFileRecords:
    return MadeFileRecords(database)


def begun(
    files: MadeFileRecords, name: str, version: str, *, video: UploadId = VIDEO, length: int = 5
) -> Made:
    made = Made(video, name, length, NOW, version)
    files.begin(made)
    return made


def kept(files: MadeFileRecords, name: str, version: str, *, video: UploadId = VIDEO) -> Made:
    made = begun(files, name, version, video=video)
    files.keep(made, NOW)
    return made


def test_a_file_is_found_once_it_is_kept_and_the_one_it_replaces_is_due(
    files: MadeFileRecords,
) -> None:
    old = kept(files, "poster.jpg", "1")
    new = begun(files, "poster.jpg", "2")
    assert files.find(VIDEO, "poster.jpg") == old
    files.keep(new, NOW)
    assert files.find(VIDEO, "poster.jpg") == new
    assert files.due(NOW, 10) == []
    assert files.due(NOW + READ_FOR, 10) == [old]
    files.forget([old, new])
    assert files.due(NOW + READ_FOR, 10) == []
    assert files.find(VIDEO, "poster.jpg") == new


def test_what_a_killed_maker_left_is_due_and_cannot_be_kept_any_more(
    files: MadeFileRecords,
) -> None:
    made = begun(files, "poster.jpg", "1")
    late = NOW + UNFINISHED_FOR
    assert files.due(late, 10) == [made]
    with pytest.raises(Outdated):
        files.keep(made, late)
    files.forget([made])
    with pytest.raises(Outdated):
        files.keep(made, NOW)


def test_a_new_file_replaces_nothing(files: MadeFileRecords) -> None:
    first = kept(files, "rungs/720/init.mp4", "1")
    second = begun(files, "rungs/720/init.mp4", "2")
    with pytest.raises(FileExistsError):
        files.keep(second, NOW, is_new=True)
    assert files.find(VIDEO, "rungs/720/init.mp4") == first


def test_nothing_is_added_to_a_bundle_that_was_discarded(files: MadeFileRecords) -> None:
    mark = kept(files, MARK, "1")
    segment, late = begun(files, "rungs/720/1.m4s", "2"), begun(files, "rungs/720/2.m4s", "3")
    files.keep(segment, NOW, beside=mark)
    kept(files, "rungs/7200/1.m4s", "4")
    assert files.discard(VIDEO, "rungs/720", NOW) == 2
    assert files.discard(VIDEO, "rungs/720", NOW) == 0
    with pytest.raises(Outdated):
        files.keep(late, NOW, beside=mark)
    kept(files, MARK, "5")
    with pytest.raises(Outdated):
        files.keep(late, NOW, beside=mark)
    assert files.find(VIDEO, "rungs/7200/1.m4s") is not None


def test_lists_name_what_is_kept(files: MadeFileRecords) -> None:
    kept(files, "poster.jpg", "1")
    kept(files, "hls/source/init.mp4", "2")
    begun(files, "sprite.jpg", "3")
    kept(files, "poster.jpg", "4", video=OTHER)
    assert files.top_names([VIDEO]) == {VIDEO: {"poster.jpg"}}
    assert sorted(files.videos()) == [VIDEO, OTHER]
    assert files.kept(["1", "3", "4", "5"]) == {"1", "4"}
    assert files.discard_all(VIDEO, NOW) == 2
    assert files.videos() == [OTHER]
    assert {made.version for made in files.due(NOW, 10, VIDEO)} == {"1", "2"}


def test_a_bundle_has_the_size_of_its_files_and_the_time_of_its_last_use(
    files: MadeFileRecords,
) -> None:
    for version, name in enumerate(["rungs/720/init.mp4", "rungs/720/1.m4s", "renditions/720.mp4"]):
        kept(files, name, str(version))
    kept(files, "hls/source/init.mp4", "9")
    files.note_use(VIDEO, "rungs/720/init.mp4", at(30))
    files.note_use(VIDEO, "rungs/720/init.mp4", at(100))
    files.note_use(VIDEO, "rungs/720/none", at(200))
    found = sorted(files.bundles({"rungs", "renditions"}), key=lambda bundle: bundle.name)
    assert [(each.name, each.size) for each in found] == [
        ("renditions/720.mp4", 5),
        ("rungs/720", 10),
    ]
    assert [each.used_at for each in found] == [NOW.timestamp(), at(100).timestamp()]
