"""What is kept about a film can be read by the version before."""

from __future__ import annotations

import json

from app.video.serve.facts import Chapter, Facts, Manifest, Stream, TrackFacts


def test_members_of_a_later_version_are_ignored_in_facts() -> None:
    facts = Facts(
        container="mp4",
        duration=1.0,
        tracks=(TrackFacts(kind="video", codec="avc1"),),
        chapters=(Chapter(0.0, "Morning"),),
    )
    stored = json.loads(json.dumps(facts.to_json()))
    for values in (stored, *stored["tracks"], *stored["chapters"]):
        values["later"] = 1
    assert Facts.from_json(stored) == facts


def test_members_of_a_later_version_are_ignored_in_a_manifest() -> None:
    stream = Stream(
        name="video",
        kind="video",
        codecs="avc1",
        peak_rate=2,
        mean_rate=1,
        ends=(5,),
        durations=(1.0,),
        reaches=(9,),
    )
    (values,) = json.loads(Manifest([stream]).to_json())
    stored = json.dumps([{**values, "later": 1}]).encode()
    assert Manifest.from_json(stored).streams == [stream]
