"""When an upload passes its client key to the next one."""

from __future__ import annotations

import pytest

from app.core.errors import UploadGone
from app.uploads.service import NewUpload
from tests.uploads.world import ME, OTHERS, World

NEW = NewUpload(scope=ME, filename="film.mp4", length=10, client_key="key")


def test_a_new_upload_gets_the_key_of_one_that_has_ended(world: World) -> None:
    ended, _ = world.service.create(NEW)
    world.service.cancel(ME, ended.id)
    with pytest.raises(UploadGone):
        world.service.create(NEW)
    world.service.release_key(ME, "key")
    upload, is_new = world.service.create(NEW)
    assert is_new
    assert upload.id != ended.id


def test_an_unfinished_upload_keeps_its_key(world: World) -> None:
    upload, _ = world.service.create(NEW)
    world.service.release_key(ME, "key")
    assert world.service.create(NEW) == (upload, False)


def test_a_key_is_released_only_for_its_owner_and_unknown_keys_are_ignored(
    world: World,
) -> None:
    ended, _ = world.service.create(NEW)
    world.service.cancel(ME, ended.id)
    world.service.release_key(OTHERS, "key")
    world.service.release_key(ME, "other")
    with pytest.raises(UploadGone):
        world.service.create(NEW)
