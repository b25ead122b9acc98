"""The tables of playback and of jobs."""

from __future__ import annotations

import pytest

from app.core.jobs import ENDED, TRANSITIONS, JobState, Lane, sources
from app.core.playback import IllegalPlaybackStep, PlaybackState, check_transition

LEGAL = {
    *(("waiting", after) for after in ("probed", "playable", "ready", "unplayable")),
    *(("probed", after) for after in ("playable", "ready", "unplayable")),
    *(("playable", after) for after in ("probed", "ready", "unplayable")),
    *(("ready", after) for after in ("probed", "playable", "unplayable")),
    *(("unplayable", after) for after in ("probed", "playable", "ready")),
}


@pytest.mark.parametrize("before", PlaybackState)
@pytest.mark.parametrize("after", PlaybackState)
def test_playback_takes_the_steps_of_the_table_alone(
    before: PlaybackState, after: PlaybackState
) -> None:
    if before is after or (before.value, after.value) in LEGAL:
        check_transition(before, after)
    else:
        with pytest.raises(IllegalPlaybackStep, match=f"from {before} to {after}"):
            check_transition(before, after)


def test_a_job_that_has_ended_can_only_be_queued_again() -> None:
    assert {state: TRANSITIONS[state] for state in ENDED} == dict.fromkeys(
        ENDED, frozenset({JobState.QUEUED})
    )
    assert sources(JobState.CANCELLED) == [JobState.QUEUED, JobState.RUNNING]
    assert sources(JobState.DONE) == [JobState.RUNNING]


def test_uploads_go_before_every_lane_and_films_that_wait_before_the_rest() -> None:
    assert [(lane.urgency, lane.niceness) for lane in Lane] == [
        (0, 5),
        (1, 5),
        (2, 19),
        (3, 19),
        (4, 19),
        (5, 19),
        (6, 19),
    ]
