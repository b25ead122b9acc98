"""Tracks that an edit list cuts into parts, as tracks that are shown from beginning to end.

A sample is no more than a place in the file, so samples can be left out, moved and repeated. A part
begins at the key frame at or before its start. Pictures that are decoded there and not shown last a
microsecond each: a player decodes them, and nobody sees them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, chain, compress, islice, zip_longest
from operator import sub

from app.video.index.boxes import LARGEST_32_BIT, LongIndex, NotIndexable, damaged
from app.video.index.edits import MAX_EDITS, Stretch, Timeline, stretches
from app.video.index.samples import MOST_REORDERED, Samples
from app.video.index.tracks import Track

PREROLL_SECONDS = Fraction(1, 10)
"""Sound before time 0 that is kept for its decoder; Opus needs most, 80 ms (RFC 7845, 4.6)."""

_MOST_ADDED = 100_000
"""Samples by which the edits may exceed twice those of the track; with more it stays as it is."""

MOST_FLATTENED = 2_000_000
"""Samples of all tracks of a film with edits, 18 hours of pictures; a track beyond stays as it is.
A million take 1.7 CPU s and 120 MB."""

_TICKS = 1_000_000
"""A second, of pictures: browsers count in microseconds."""

_SMALLEST_CUT = 50
"""Pictures hidden for less than this part of a second are shown: edit lists count in 1/600 s."""


_ENTRIES = 2
"""Entries of an index that a sample counts as when it is looked at."""


class Remaining:
    """How many samples of a film may still be looked at."""

    def __init__(self, most_entries: int) -> None:
        """Here, they may take as long as an index of so many entries."""
        self.samples = MOST_FLATTENED
        self._most_entries = most_entries
        self._entries = most_entries

    def take(self, count: int) -> None:
        """Note that so many are looked at.

        Raises `LongIndex` if that takes too long here, and `NotIndexable` if it does anywhere.
        """
        self.samples -= count
        self._entries -= _ENTRIES * count
        if self._entries < 0:
            raise LongIndex(self._most_entries + 1)
        if self.samples < 0:
            raise _too_often()


def flattened(track: Track, *, movie_timescale: int, remaining: Remaining) -> Track:
    """The track as it is shown, in one stretch.

    It is returned as it is if it is so already, or if it cannot be done: if a part is shown at
    another speed, if the edits repeat it too often, or if they show nothing for over an hour.
    The samples that are looked at are subtracted from `remaining`, which all tracks share: a few
    edits may repeat a short track as often as a film has pictures. Raises `LongIndex` as that does.
    """
    if track.timeline.is_simple and not hides_its_beginning(track):
        return track
    is_normal = all(edit.is_at_normal_speed for edit in track.edits)
    if not track.samples or not is_normal or len(track.edits) > MAX_EDITS:
        return track
    factor = max(_TICKS // track.timescale, 1) if track.kind == "video" else 1
    timescale = factor * track.timescale
    try:
        parts = stretches(
            track.edits, movie_timescale=movie_timescale, timescale=track.timescale, factor=factor
        )
        if len(track.samples) > remaining.samples:
            return track
        shown = _Shown(track.samples.finer(factor), remaining)
        if track.kind == "video":
            shown.add_pictures(parts, step=max(timescale // _TICKS, 1))
        elif track.kind == "audio":
            shown.add_sound(parts, preroll=int(PREROLL_SECONDS * timescale))
        else:
            shown.add_texts(parts)
        samples = shown.samples()
    except (NotIndexable, OverflowError):
        return track
    timeline = Timeline(0, shown.end, is_simple=True)
    return replace(
        track, timescale=timescale, timeline=timeline, samples=samples, unseen=tuple(shown.unseen)
    )


def hides_its_beginning(track: Track) -> bool:
    """Whether the first pictures are before time 0: players drop them and what depends on them."""
    count = min(len(track.samples), MOST_REORDERED)
    first = min(track.samples.composition_times(0, count), default=0) + track.timeline.shift
    return track.kind == "video" and -first * _SMALLEST_CUT > track.timescale


class _Shown:
    """The samples of a track as they are added in the order in which they are decoded."""

    def __init__(self, source: Samples, remaining: Remaining) -> None:
        self._source = source
        self._remaining = remaining
        self._earliest = min(source.composition_offsets, default=0)
        self._room = 2 * len(source) + _MOST_ADDED
        self._numbers = array("I")
        self._decode_times = array("q")
        self._composition_offsets = array("i")
        self._clock = 0
        """When the last one has ended."""
        self.end = 0
        """When the last one that is seen or heard has ended."""
        self.unseen: list[range] = []
        """When those are decoded that are not shown; see `Track`."""

    def samples(self) -> Samples:
        """All of them; raises `NotIndexable` if there are none, or if one lasts too long."""
        source, numbers = self._source, self._numbers
        keys = source.key_frames if isinstance(source.key_frames, range) else set(source.key_frames)
        found = Samples(
            array("Q", map(source.offsets.__getitem__, numbers)),
            array("I", map(source.sizes.__getitem__, numbers)),
            self._decode_times,
            self._composition_offsets,
            array("I", compress(range(len(numbers)), map(keys.__contains__, numbers))),
            max(self._clock, self.end),
        )
        if not numbers or max(found.durations(0, len(numbers))) > LARGEST_32_BIT:
            raise damaged("the edit list shows nothing, or nothing for too long")
        return found

    def add_sound(self, parts: Iterable[Stretch], *, preroll: int) -> None:
        """Packets are not cut: each part begins and ends with the nearest one.

        They follow each other without gaps or overlaps, and as the next part begins where this one
        ends, the error of half a packet, mostly 11 ms, does not add up.
        """
        source, times = self._source, self._source.decode_times
        packet = (source.end - times[0]) // len(source)
        for part in parts:
            if not self._numbers and not part.start:
                first = max(bisect_right(times, part.media_time - preroll) - 1, 0)
                later = -part.media_time
            else:
                begin = self._clock if self._clock > part.start - packet else part.start
                first = _nearest(source, part.media_time + begin - part.start)
                later = begin - times[first] if first < len(source) else 0
            last = _nearest(source, part.end - later)
            if first < last:
                self._add_run(first, last, later=later)
                self.end = min(self._clock, part.end)

    def add_texts(self, parts: Iterable[Stretch]) -> None:
        """A text of which only the end is in a part is shown from the beginning of the part on."""
        times = self._source.decode_times
        for part in parts:
            first = max(bisect_right(times, part.media_time) - 1, 0)
            last = bisect_left(times, part.media_end)
            if first < last:
                begin = len(self._numbers)
                self._add_run(first, last, later=part.start - part.media_time)
                self._decode_times[begin] = max(self._decode_times[begin], part.start)
                self._clock = self.end = min(self._clock, part.end)

    def _add_run(self, first: int, last: int, *, later: int) -> None:
        """Samples that keep their distances, decoded so much later."""
        self._take(last - first)
        source, times = self._source, self._source.decode_times
        self._numbers.extend(range(first, last))
        self._decode_times.extend(map(later.__add__, times[first:last]))
        self._composition_offsets.extend(source.composition_offsets[first:last])
        self._clock = later + (times[last] if last < len(source) else source.end)

    def add_pictures(self, parts: Iterable[Stretch], *, step: int) -> None:
        """Those that are not seen last `step` ticks each.

        The first one that is seen is shown from the beginning of the film on, as players cannot
        begin with nothing, and one before a gap until its end.
        """
        parts = list(parts)
        for part, after in zip_longest(parts, parts[1:]):
            numbers, times = self._decoded(part)
            order = sorted(range(len(times)), key=times.__getitem__)
            hidden = sum(time < part.media_time for time in times)
            seen = order[hidden : len(times) - sum(time >= part.media_end for time in times)]
            if seen:
                own_end = times[seen[-1]] + self._source.duration(numbers[seen[-1]])
                end = min(part.start + own_end - part.media_time, part.end)
                self.end = after.start if after else end
                begin = max(self._clock, part.start if self._numbers else 0)
                later = array("q", (part.start + times[place] - part.media_time for place in seen))
                later[0] = later[0] if self._numbers else 0
                moments = self._moments(begin, hidden, later, len(times), step=step)
                self._add_pictures_of(numbers, order, moments)

    def _decoded(self, part: Stretch) -> tuple[array[int], array[int]]:
        """The pictures from the key frame before a part to the last one that it shows.

        Their numbers, and when they are shown by the times of the samples. Pictures that are shown
        before the key frame cannot be decoded without what comes before it.
        """
        source, keys = self._source, self._source.key_frames
        place = bisect_right(keys, part.media_time, key=source.composition_time) - 1
        first = keys[max(place, 0)] if keys else 0
        # It may end before the first key frame.
        last = max(bisect_left(source.decode_times, part.media_end - self._earliest), first)
        self._take(last - first)
        times = array("q", source.composition_times(first, last))
        while times and times[-1] >= part.media_end:
            times.pop()
        numbers = (number for number, time in enumerate(times, start=first) if time >= times[0])
        return array("I", numbers), array("q", (time for time in times if time >= times[0]))

    def _moments(
        self, begin: int, hidden: int, seen: Sequence[int], count: int, *, step: int
    ) -> array[int]:
        """When `count` pictures are shown, in that order: `hidden` ones first, and others last.

        `seen` has the times of those between. The last of them stays until `end`.
        """
        before = range(begin, begin + hidden * step, step)
        moments, clock = array("q", before), before.stop
        for time in seen:
            moments.append(max(clock, time))
            clock = moments[-1] + step
        start = max(clock, self.end)
        after = range(start, start + (count - len(moments)) * step, step)
        moments.extend(after)
        self._clock = after.stop
        self.unseen += [run for run in (before, after) if run]
        return moments

    def _add_pictures_of(
        self, numbers: array[int], order: Sequence[int], moments: array[int]
    ) -> None:
        """Add samples; `order` is that in which they are shown, at `moments`.

        Decode times differ by how long each is shown: that is where players look for it.
        """
        shown_at, lasts = array("q", bytes(8 * len(order))), array("q", bytes(8 * len(order)))
        ends = chain(islice(moments, 1, None), (self._clock,))
        for place, moment, end in zip(order, moments, ends, strict=True):
            shown_at[place], lasts[place] = moment, end - moment
        decode_times = array("q", accumulate(lasts, initial=moments[0]))
        decode_times.pop()
        self._numbers.extend(numbers)
        self._decode_times.extend(decode_times)
        self._composition_offsets.extend(map(sub, shown_at, decode_times))

    def _take(self, count: int) -> None:
        """Note how many samples are looked at; raises as `Remaining.take` if those are too many."""
        self._room -= count
        if self._room < 0:
            raise _too_often()
        self._remaining.take(count)


def _too_often() -> NotIndexable:
    return damaged("the edit list repeats too much")


def _nearest(samples: Samples, tick: int) -> int:
    """The number of the sample that is decoded nearest to `tick`; their count for the end."""
    times, place = samples.decode_times, bisect_left(samples.decode_times, tick)
    after = times[place] if place < len(samples) else samples.end
    return place - 1 if place and tick - times[place - 1] <= after - tick else place
