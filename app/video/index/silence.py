"""Silence before sound that begins later than the film, for HLS.

Players cannot begin, or seek, where one of the streams has nothing (RFC 8216, 6.2.4). Packets of
silence that need no encoder fill that time.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from fractions import Fraction

from app.video.index.samples import Samples
from app.video.index.tracks import Track

MOST_SECONDS = 3600
"""Of silence; sound that begins later leaves the film to `play.mp4`."""

_MEASURED = 100
"""Packets by which the length of all is measured: single ones are rounded to ticks."""

MOST_PACKETS = 1_000_000
"""Of silence, in all tracks of a film: six begin an hour late, or 32 ten minutes, with the usual 47
a second. Each takes up to 30 bytes on disk: one of 5.1, and its size."""

_MOST_A_SECOND = 110
"""Packets; where a file says that its packets are shorter, none of silence is known. Those of AAC
last 10 ms or more: 960 samples at 96 kHz (ISO/IEC 14496-3). Some room is for rounded times."""

_ENCODED_A_SECOND = 50
"""Packets of sound that is encoded: 1024 samples, mostly at 48 kHz."""

_AAC = {
    1: "00c800802380",
    2: "210049900219002380",
    3: "00c8008020840126400864008e",
    4: "00c800802084012640086400802c80080238",
    5: "00c800802084012640086400823004990021900238",
    6: "00c800802084012640086400823004990021900200b2002008e0",
}
"""A silent packet of AAC LC (ISO/IEC 14496-3, 4.4.2.1) for each number of channels: their elements
in the usual order, with no spectral data."""

_AAC_CODECS = frozenset(("mp4a.40.2", "mp4a.40.5"))

_OPUS, _OPUS_SECONDS = bytes.fromhex("f8fffe"), Fraction(1, 50)
"""20 ms of silence (RFC 6716, 3.1: one CELT frame)."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Packets of silence at the beginning of a track."""

    packet: bytes
    count: int

    def within(self, first: int, last: int) -> bytes:
        """Those among the samples from `first` up to `last`."""
        return self.packet * max(min(last, self.count) - first, 0)


NO_SILENCE = Silence(b"", 0)


def can_begin_late(track: Track) -> bool:
    """Whether silence is known for its codec, or none is needed."""
    return _lateness(track, 0) <= 0 or _packet(track) is not None


def silent_packets(track: Track) -> int:
    """How many packets of silence come before a track with sound, as it is or once encoded.

    The file says when its sound begins, in a few bytes: they are work that its tables do not show.
    """
    late = _lateness(track, 0) if track.samples else 0
    if not 0 < late <= MOST_SECONDS * track.timescale:
        return 0
    packet = _packet(track)
    return int(late / (packet.ticks if packet else Fraction(track.timescale, _ENCODED_A_SECOND)))


def with_silence(track: Track, first: int) -> tuple[Track, Silence]:
    """The track from its sample `first` on, with silence up to there from time 0 on.

    Without any if its codec has no known one. It begins within the first packet's time.
    """
    packet, late = _packet(track), _lateness(track, first)
    samples = track.samples
    if packet is None or late <= 0:
        return track, NO_SILENCE
    count = int(late / packet.ticks)
    begin, (ticks, parts) = samples.decode_times[first], packet.ticks.as_integer_ratio()
    times = (begin - (2 * number * ticks + parts) // (2 * parts) for number in range(count, 0, -1))
    longer = Samples(
        array("Q", bytes(8 * count)) + samples.offsets[first:],
        array("I", (len(packet.data),)) * count + samples.sizes[first:],
        array("q", times) + samples.decode_times[first:],
        array("i", bytes(4 * count)) + samples.composition_offsets[first:],
        range(count + len(samples) - first),
        samples.end,
    )
    return replace(track, samples=longer), Silence(packet.data, count)


@dataclass(frozen=True, slots=True)
class _Packet:
    data: bytes
    ticks: Fraction


def _lateness(track: Track, first: int) -> int:
    """Ticks of the film's time before its sample `first`."""
    return track.samples.decode_times[first] + track.timeline.shift


def _packet(track: Track) -> _Packet | None:
    """A packet of silence, and how long it lasts; None if none is known for the track."""
    codec = track.codec.lower()
    if codec == "opus" and track.channels <= 2:
        return _Packet(_OPUS, _OPUS_SECONDS * track.timescale)
    if codec not in _AAC_CODECS or track.channels not in _AAC:
        return None
    times = track.samples.decode_times[: _MEASURED + 1]
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    ticks = Fraction(times[-1] - times[0], len(times) - 1)
    if ticks * _MOST_A_SECOND < track.timescale:
        return None
    return _Packet(bytes.fromhex(_AAC[track.channels]), ticks)
