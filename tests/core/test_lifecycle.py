"""Every pair of states is a step of the table or is refused without effect."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from app.core.lifecycle import (
    ACTIVE,
    GONE,
    TRANSITIONS,
    IllegalTransition,
    UploadState,
    check_transition,
)
from app.core.upload import Upload, UploadId

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)

STEPS = {
    ("receiving", "verifying"),
    ("receiving", "cancelled"),
    ("receiving", "expired"),
    ("receiving", "held"),
    ("held", "receiving"),
    ("held", "cancelled"),
    ("held", "expired"),
    ("verifying", "receiving"),
    ("verifying", "complete"),
    ("verifying", "cancelled"),
    ("verifying", "expired"),
    ("complete", "deleted"),
}
PAIRS = list(product(UploadState, UploadState))


def upload_in(state: UploadState) -> Upload:
    return Upload(
        id=UploadId("0" * 32),
        owner="",
        filename="a.mp4",
        length=10,
        client_key="key",
        created_at=NOW,
        active_at=NOW,
        state=state,
    )


@pytest.mark.parametrize(("current", "target"), PAIRS)
def test_a_step_is_in_the_table_or_raises_and_changes_nothing(
    current: UploadState, target: UploadState
) -> None:
    upload = upload_in(current)
    if (current, target) in STEPS:
        moved = upload.moved_to(target, LATER)
        assert (moved.state, moved.active_at) == (target, LATER)
        check_transition(current, target)
    else:
        with pytest.raises(IllegalTransition, match=f"from {current} to {target}"):
            upload.moved_to(target, LATER)
        with pytest.raises(IllegalTransition):
            check_transition(current, target)
    assert upload == upload_in(current)


def test_the_table_has_exactly_these_steps() -> None:
    table = {(current, target) for current, ends in TRANSITIONS.items() for target in ends}
    assert table == STEPS
    assert set(TRANSITIONS) == set(UploadState)


def test_each_state_is_active_or_gone_or_complete() -> None:
    assert set(UploadState) == ACTIVE | GONE | {UploadState.COMPLETE}
    assert not ACTIVE & GONE


def test_no_step_leaves_a_gone_state() -> None:
    assert {state for state in UploadState if not TRANSITIONS[state]} == GONE


def test_only_completion_sets_the_publication_time() -> None:
    verifying = upload_in(UploadState.VERIFYING)
    complete = verifying.moved_to(UploadState.COMPLETE, LATER)
    assert complete.published_at == LATER
    assert verifying.moved_to(UploadState.EXPIRED, LATER).published_at is None
    deleted = complete.moved_to(UploadState.DELETED, LATER + timedelta(days=1))
    assert deleted.published_at == LATER
