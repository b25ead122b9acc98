"""How far videos can be played, as the records keep it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from threading import get_ident
from typing import Any

import pytest
from sqlalchemy import Engine, event

from app.core.errors import UploadGone
from app.core.jobs import DIGESTS, WEBHOOK, JobState, Lane
from app.core.lifecycle import UploadState
from app.core.playback import IllegalPlaybackStep, PlaybackProblem, PlaybackState
from app.core.upload import Upload, UploadId
from app.db.engine import Database
from app.db.jobs import JobRecords
from app.records.uploads import UploadRecords
from app.video.serve.rows import MediaRecords
from tests.records.making import NOW, at, new_upload


@pytest.fixture
def media(database: Database) -> MediaRecords:
    return MediaRecords(database)


@pytest.fixture
def uploads(database: Database) -> UploadRecords:
    return UploadRecords(database)


def video(uploads: UploadRecords, seconds: float = 0) -> Upload:
    complete = replace(new_upload(), state=UploadState.COMPLETE, active_at=at(seconds))
    return uploads.add(complete)[0]


def test_a_video_waits_and_then_has_what_was_found(
    media: MediaRecords, uploads: UploadRecords
) -> None:
    film = video(uploads).id
    assert media.get(film) is None
    media.add(film, NOW, is_planned=True)
    waiting = media.get(film)
    assert waiting is not None
    assert (waiting.state, waiting.facts, waiting.problem) == (PlaybackState.WAITING, None, None)
    facts = {"duration": 61.5, "tracks": [{"kind": "audio", "language": "fr"}], "title": "été"}
    problem = PlaybackProblem("truncated", "The file ends after 40 of 61 seconds.")
    media.describe(film, PlaybackState.PLAYABLE, at(1), facts=facts, problem=problem)
    after = media.move(film, PlaybackState.READY, at(2))
    assert (after.state, after.facts, after.problem) == (PlaybackState.READY, facts, problem)
    assert after.updated_at == at(2)
    assert media.of([film, UploadId("0" * 32)]) == {film: after}


def test_adding_again_changes_nothing_but_the_plan(
    media: MediaRecords, uploads: UploadRecords
) -> None:
    film = video(uploads).id
    media.add(film, NOW, is_planned=False)
    media.move(film, PlaybackState.PLAYABLE, at(1))
    assert media.unplanned(10) == [film]
    media.add(film, at(2), is_planned=True)
    media.add(film, at(3), is_planned=False)
    assert media.unplanned(10) == []
    found = media.get(film)
    assert found is not None
    assert (found.state, found.updated_at) == (PlaybackState.PLAYABLE, at(1))


def test_videos_are_looked_at_again_on_request(media: MediaRecords, uploads: UploadRecords) -> None:
    films = [video(uploads, -number).id for number in range(3)]
    for film in films:
        media.add(film, NOW, is_planned=True)
    assert media.plan_again([films[1], UploadId("f" * 32)]) == 1
    assert media.unplanned(10) == [films[1]]
    assert media.plan_again(None) == 2
    assert media.unplanned(10) == films


def test_an_illegal_step_changes_nothing(media: MediaRecords, uploads: UploadRecords) -> None:
    film = video(uploads).id
    media.add(film, NOW, is_planned=True)
    problem = PlaybackProblem("no_film", "This file is no film.")
    before = media.describe(film, PlaybackState.UNPLAYABLE, at(1), facts=None, problem=problem)
    with pytest.raises(IllegalPlaybackStep):
        media.describe(film, PlaybackState.WAITING, at(2), facts={"duration": 1})
    assert media.get(film) == before


def test_without_a_row_or_an_upload_the_video_is_gone(
    media: MediaRecords, uploads: UploadRecords
) -> None:
    with pytest.raises(UploadGone):
        media.add(UploadId("f" * 32), NOW, is_planned=True)
    film = video(uploads).id
    with pytest.raises(UploadGone):
        media.move(film, PlaybackState.PROBED, NOW)
    media.add(film, NOW, is_planned=True)
    uploads.remove(film)
    assert media.get(film) is None


def test_only_complete_uploads_without_a_plan_are_found_the_newest_first(
    media: MediaRecords, uploads: UploadRecords
) -> None:
    uploads.add(new_upload())
    films = [video(uploads, seconds).id for seconds in (10, 30, 20)]
    media.add(video(uploads, 40).id, NOW, is_planned=True)
    assert media.unplanned(10) == [films[1], films[2], films[0]]
    assert media.unplanned(1) == [films[1]]
    assert media.unplanned(10, since=at(15)) == [films[1], films[2]]


def test_deleted_uploads_are_found_as_long_as_they_have_rows(
    media: MediaRecords, uploads: UploadRecords, database: Database
) -> None:
    jobs = JobRecords(database)
    films = [video(uploads).id for _ in range(3)]
    media.add(films[0], NOW, is_planned=True)
    jobs.enqueue(films[1], "index", lane=Lane.QUICK, priority=0, now=NOW)
    assert media.gone(10) == []
    for number, film in enumerate(films):
        uploads.move(film, UploadState.DELETED, at(number))
    assert set(media.gone(10)) == set(films[:2])
    assert media.gone(10, since=at(1)) == [films[1]]
    media.forget(films)
    assert media.gone(10) == []
    assert jobs.of(films[1]) == []


def test_planning_a_batch_is_one_transaction_and_renews_what_has_ended(
    media: MediaRecords, uploads: UploadRecords, database: Database
) -> None:
    jobs = JobRecords(database)
    fresh, again, arrived, deleted = (video(uploads).id for _ in range(4))
    media.plan([again], Lane.QUICK, NOW)
    ended = jobs.claim(Lane.QUICK, "a", NOW, timedelta(seconds=1), {"index"})
    assert ended is not None
    assert jobs.finish(ended, NOW)
    media.add(arrived, NOW, is_planned=False)
    media.move(arrived, PlaybackState.PLAYABLE, NOW)
    uploads.move(deleted, UploadState.DELETED, NOW)
    media.plan_again([again])
    media.plan([fresh, again, arrived, deleted, UploadId("f" * 32)], Lane.BACKGROUND, at(1))
    for film in (fresh, again, arrived):
        (job,) = jobs.of(film)
        assert (job.kind, job.state, job.lane) == ("index", JobState.QUEUED, Lane.BACKGROUND)
        assert (job.attempts, job.queued_at) == (0, at(1))
    assert jobs.of(deleted) == []
    assert media.unplanned(10) == []
    states = {film: playback.state for film, playback in media.of([fresh, arrived]).items()}
    assert states == {fresh: PlaybackState.WAITING, arrived: PlaybackState.PLAYABLE}
    media.plan_again([fresh])
    media.plan([fresh], Lane.QUICK, at(2))
    assert [(job.lane, job.queued_at) for job in jobs.of(fresh)] == [(Lane.QUICK, at(1))]


def test_a_running_index_that_is_planned_again_runs_once_more(
    media: MediaRecords, uploads: UploadRecords, database: Database
) -> None:
    jobs = JobRecords(database)
    film = video(uploads).id
    media.plan([film], Lane.QUICK, NOW)
    claimed = jobs.claim(Lane.QUICK, "a", NOW, timedelta(seconds=9), {"index"})
    assert claimed is not None
    media.plan_again([film])
    media.plan([film], Lane.QUICK, at(1))
    assert jobs.finish(claimed, at(2))
    assert [job.state for job in jobs.of(film)] == [JobState.QUEUED]


def test_a_conclusion_does_not_replace_what_was_found(
    media: MediaRecords, uploads: UploadRecords
) -> None:
    film, other = video(uploads).id, video(uploads).id
    media.plan([film, other], Lane.QUICK, NOW)
    media.move(film, PlaybackState.PLAYABLE, NOW)
    problem = PlaybackProblem("worker_ended", "The worker was killed.")
    media.conclude([(each, PlaybackState.UNPLAYABLE, problem) for each in (film, other)], at(1))
    found = media.of([film, other])
    assert (found[film].state, found[film].problem) == (PlaybackState.PLAYABLE, None)
    assert (found[other].state, found[other].problem) == (PlaybackState.UNPLAYABLE, problem)


def test_what_the_worker_asks_each_second_reads_indexes_and_not_all_videos(
    in_file: Database,
) -> None:
    media, jobs = MediaRecords(in_file), JobRecords(in_file)
    asked: list[tuple[str, Any]] = []
    here = get_ident()

    @event.listens_for(Engine, "before_cursor_execute")
    def note(*call: Any) -> None:
        if get_ident() == here:  # A server of another test may still run.
            asked.append((call[2], call[3]))

    try:
        media.unplanned(10, since=NOW)
        media.gone(10, since=NOW)
        media.undescribed(10, is_recent=True)
        jobs.lanes_due(NOW)
        jobs.claim(Lane.QUICK, "a", NOW, timedelta(seconds=1), {"index"})
        jobs.claim(Lane.WEBHOOKS, "a", NOW, timedelta(seconds=1), {WEBHOOK})
        jobs.hurry(DIGESTS, NOW)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert len(asked) == 7
    with in_file.read() as connection:
        for statement, values in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            steps = [str(row[3]) for row in plan]
            assert not [step for step in steps if step.startswith("SCAN") and "INDEX" not in step]
            assert "USING" in steps[0]
