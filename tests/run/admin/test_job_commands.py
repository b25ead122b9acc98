"""`flask jobs`, run through Flask's own CLI."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.core.jobs import Job, Lane
from app.core.playback import PlaybackProblem
from app.core.upload import UploadId
from app.video.make.steps import NO_FFMPEG
from tests.run.admin.test_commands import Operator


class Queue:
    """An operator whose server has jobs."""

    def __init__(self, folder: Path) -> None:
        self.operator = Operator(folder)
        self.run, self.json = self.operator.run, self.operator.json
        self.jobs = self.operator.services.media.jobs

    def add(
        self, filename: str = "film.mp4", step: str = "rendition", argument: str = "720"
    ) -> Job:
        video = UploadId(self.operator.finish(filename).name)
        return self.jobs.enqueue(
            video, step, argument, lane=Lane.BACKGROUND, priority=5, now=datetime.now(UTC)
        )

    def fail(self, code: str = "ffmpeg_failed") -> Job:
        job = self.add()
        claimed = self.jobs.claim(
            Lane.BACKGROUND, "a", datetime.now(UTC), timedelta(minutes=1), {"rendition"}
        )
        assert claimed is not None
        problem = PlaybackProblem(code, "The picture cannot be decoded.")
        assert self.jobs.fail(claimed, problem, datetime.now(UTC), retry_after=None)
        return job


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    made = Queue(tmp_path)
    yield made
    made.operator.services.database.close()


def test_jobs_list_shows_what_waits(queue: Queue) -> None:
    job = queue.add("a\u202e4pm.mp4")
    (row,) = queue.json("jobs", "list")
    assert (row["id"], row["step"], row["argument"]) == (job.upload_id, "rendition", "720")
    assert (row["state"], row["lane"], row["progress"]) == ("queued", "background", 0.0)
    line = queue.run("jobs", "list").stdout
    assert "rendition 720" in line
    assert "4pm.mp4" in line
    assert "\u202e" not in line


def test_jobs_failed_says_why_and_retry_queues_them_again(queue: Queue) -> None:
    job = queue.fail()
    assert queue.json("jobs", "list") == []
    (row,) = queue.json("jobs", "failed")
    assert (row["code"], row["problem"]) == ("ffmpeg_failed", "The picture cannot be decoded.")
    assert "The picture cannot be decoded." in queue.run("jobs", "failed").stdout
    assert queue.run("jobs", "retry", "--code", NO_FFMPEG).stdout == "0 queued\n"
    assert queue.run("jobs", "retry", job.upload_id).stdout == "1 queued\n"
    assert queue.json("jobs", "failed") == []
    assert len(queue.json("jobs", "list")) == 1


def test_jobs_cancel_ends_one_job(queue: Queue) -> None:
    job = queue.add()
    assert queue.run("jobs", "cancel", job.upload_id, "rendition", "720").exit_code == 0
    assert queue.json("jobs", "list") == []
    again = queue.run("jobs", "cancel", job.upload_id, "rendition", "720")
    assert again.exit_code == 1
    assert again.stderr == "Error: No such job waits or runs.\n"


def test_help_and_documentation_name_a_code_that_exists(queue: Queue) -> None:
    assert f"as in {NO_FFMPEG}." in " ".join(queue.run("jobs", "retry", "--help").stdout.split())
    operations = Path(__file__).parents[3] / "docs" / "operations.md"
    assert f"`jobs retry --code {NO_FFMPEG}`" in operations.read_text()


def test_jobs_again_has_videos_looked_at_as_if_new(queue: Queue) -> None:
    media = queue.operator.services.media.records
    videos = [queue.add(f"{number}.mp4").upload_id for number in range(3)]
    for video in videos:
        media.add(video, datetime.now(UTC), is_planned=True)
    assert queue.run("jobs", "again", videos[1]).stdout == "1 videos\n"
    assert media.unplanned(10) == [videos[1]]
    assert queue.run("jobs", "again", "--all").exit_code == 0
    assert set(media.unplanned(10)) == set(videos)
    assert queue.run("jobs", "again").exit_code == 2


def test_an_unknown_id_is_one_line(queue: Queue) -> None:
    for command in (("retry",), ("again",)):
        result = queue.run("jobs", *command, "../../etc/passwd")
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: ")
