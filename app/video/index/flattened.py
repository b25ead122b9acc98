"""Flattens edit lists: tracks with several edits become tracks that play from start to end.

A sample is only a reference into the file, so samples can be dropped, moved and repeated. A part
starts at the key frame at or before its start. Frames that are decoded there but not shown last
1 us each: a player decodes them without visibly showing them.
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
"""Audio preroll that is kept before time 0; Opus needs most, 80 ms (RFC 7845, 4.6)."""

_MOST_ADDED = 100_000
"""Limit of edits: twice the samples of the track plus these; beyond it the track is unchanged."""

MOST_FLATTENED = 2_000_000
"""Samples of all tracks of a video with edits, 18 hours of frames; a track beyond that is left
unchanged. A million take 1.7 CPU s and 120 MB."""

_TICKS = 1_000_000
"""Per second, for video tracks: browsers count in microseconds."""

_SMALLEST_CUT = 50
"""Frames hidden for less than 1/50 s are shown: edit lists count in 1/600 s."""


_ENTRIES = 2
"""Index entries that reading a sample counts as."""


class Remaining:
    """Budget of samples of a video that may still be read."""

    def __init__(self, most_entries: int) -> None:
        """Begin with the cost of an index of `most_entries` entries."""
        self.samples = MOST_FLATTENED
        self._most_entries = most_entries
        self._entries = most_entries

    def take(self, count: int) -> None:
        """Subtract `count` samples.

        Raises `LongIndex` if that is too long for this process, and `NotIndexable` for any process.
        """
        self.samples -= count
        self._entries -= _ENTRIES * count
        if self._entries < 0:
            raise LongIndex(self._most_entries + 1)
        if self.samples < 0:
            raise _too_often()


def flattened(track: Track, *, movie_timescale: int, remaining: Remaining) -> Track:
    """Returns the track as it is played, without cuts.

    Returns it unchanged if it has no cuts, or if it cannot be flattened: if an edit changes the
    speed, if the edits repeat the track too often, or if they show nothing for over an hour.
    The samples that are read are subtracted from `remaining`, which all tracks share: a few edits
    may repeat a short track as often as a video has frames. Raises `LongIndex` like
    `Remaining.take`.
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
        track,
        timescale=timescale,
        timeline=timeline,
        samples=samples,
        unseen=tuple(shown.unseen),
        stored=track,
    )


def hides_its_beginning(track: Track) -> bool:
    """Whether the first frames are before time 0: players drop them and their dependents."""
    count = min(len(track.samples), MOST_REORDERED)
    first = min(track.samples.composition_times(0, count), default=0) + track.timeline.shift
    return track.kind == "video" and -first * _SMALLEST_CUT > track.timescale


class _Shown:
    """Collects the samples of a track in decode order."""

    def __init__(self, source: Samples, remaining: Remaining) -> None:
        self._source = source
        self._remaining = remaining
        self._earliest = min(source.composition_offsets, default=0)
        self._room = 2 * len(source) + _MOST_ADDED
        self._numbers = array("I")
        self._decode_times = array("q")
        self._composition_offsets = array("i")
        self._clock = 0
        """End time of the last sample."""
        self.end = 0
        """End time of the last visible or audible sample."""
        self.unseen: list[range] = []
        """Times of samples that are decoded but not shown; see `Track`."""

    def samples(self) -> Samples:
        """Returns all samples; raises `NotIndexable` if there are none, or if one is too long."""
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
        """Add audio. Packets are not cut: each part begins and ends with the nearest packet.

        Packets follow each other without gaps or overlaps. The next part begins where this one
        ends, so the error of half a packet, mostly 11 ms, does not accumulate.
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
        """Add texts. A text that starts before a part is shown from the start of the part on."""
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
        """Add samples with their decode times shifted by `later`."""
        self._take(last - first)
        source, times = self._source, self._source.decode_times
        self._numbers.extend(range(first, last))
        self._decode_times.extend(map(later.__add__, times[first:last]))
        self._composition_offsets.extend(source.composition_offsets[first:last])
        self._clock = later + (times[last] if last < len(source) else source.end)

    def add_pictures(self, parts: Iterable[Stretch], *, step: int) -> None:
        """Add frames. Hidden ones last `step` ticks each.

        The first visible frame is shown from the start of the video on, as players cannot start
        without one, and the last frame before a gap until the end of the gap.
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
                display_times = self._display_times(begin, hidden, later, len(times), step=step)
                self._add_pictures_of(numbers, order, display_times)

    def _decoded(self, part: Stretch) -> tuple[array[int], array[int]]:
        """The frames from the key frame before a part to the last one that it shows.

        Returns their numbers and composition times. Frames that are shown before the key frame are
        left out: they cannot be decoded without earlier frames.
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

    def _display_times(
        self, begin: int, hidden: int, seen: Sequence[int], count: int, *, step: int
    ) -> array[int]:
        """Display times of `count` frames, in order: `hidden` ones, visible ones, hidden ones.

        `seen` has the times of the visible ones. The last of them stays until `end`.
        """
        before = range(begin, begin + hidden * step, step)
        display_times, clock = array("q", before), before.stop
        for time in seen:
            display_times.append(max(clock, time))
            clock = display_times[-1] + step
        start = max(clock, self.end)
        after = range(start, start + (count - len(display_times)) * step, step)
        display_times.extend(after)
        self._clock = after.stop
        self.unseen += [run for run in (before, after) if run]
        return display_times

    def _add_pictures_of(
        self, numbers: array[int], order: Sequence[int], display_times: array[int]
    ) -> None:
        """Add samples; `order` is their display order, and `display_times` are in this order.

        Differences of decode times are display durations: players take the durations from there.
        """
        shown_at, lasts = array("q", bytes(8 * len(order))), array("q", bytes(8 * len(order)))
        ends = chain(islice(display_times, 1, None), (self._clock,))
        for place, moment, end in zip(order, display_times, ends, strict=True):
            shown_at[place], lasts[place] = moment, end - moment
        decode_times = array("q", accumulate(lasts, initial=display_times[0]))
        decode_times.pop()
        self._numbers.extend(numbers)
        self._decode_times.extend(decode_times)
        self._composition_offsets.extend(map(sub, shown_at, decode_times))

    def _take(self, count: int) -> None:
        """Subtract `count` from both budgets; raises like `Remaining.take` below zero."""
        self._room -= count
        if self._room < 0:
            raise _too_often()
        self._remaining.take(count)


def _too_often() -> NotIndexable:
    return damaged("the edit list repeats too much")


def _nearest(samples: Samples, tick: int) -> int:
    """Number of the sample with the nearest decode time; the count of samples for the end."""
    times, place = samples.decode_times, bisect_left(samples.decode_times, tick)
    after = times[place] if place < len(samples) else samples.end
    return place - 1 if place and tick - times[place - 1] <= after - tick else place
