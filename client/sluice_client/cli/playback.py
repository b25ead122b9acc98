"""The command `watch`, and what the server says about playing a film in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from sluice_client.cli.connection import connected, server_options
from sluice_client.cli.output import OK, print_json, say

STATES = {
    "waiting": "the server has not looked at this file yet",
    "probed": "being prepared for watching",
    "playable": "playable",
    "ready": "playable",
    "unplayable": "not playable",
}

RENDITION_STATES = {
    "absent": "not made",
    "on_demand": "made when it is watched",
    "making": "being made",
    "ready": "ready",
    "failed": "could not be made",
}

CODECS = {
    "avc1": "H.264",
    "avc3": "H.264",
    "hvc1": "HEVC",
    "hev1": "HEVC",
    "av01": "AV1",
    "vp09": "VP9",
    "mp4a.40": "AAC",
    "opus": "Opus",
    "ac-3": "Dolby Digital",
    "ec-3": "Dolby Digital Plus",
}
"""Names of codecs by the beginning of what RFC 6381 calls them."""

CHANNELS = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}


@click.command()
@click.argument("video", metavar="ID|URL")
@server_options
def watch(video: str, as_json: bool, config: Path | None, server: str | None) -> int:
    """Open the page of a film in the browser, and print its address."""
    with connected(server, config, address=video, as_json=as_json) as client:
        url = client.watch_url(video)
    is_open = _opened(url)
    if as_json:
        print_json({"url": url, "opened": is_open})
    else:
        click.echo(url)
    if not is_open:
        say("No browser was found here; open the address in one.")
    return OK


def _opened(url: str) -> bool:
    # No other command needs it, and it loads much of the library.
    import webbrowser  # noqa: PLC0415 - see above

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def playback_lines(playback: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The `playback` of a video as a name and a text for each line; nothing of an empty one."""
    if not playback:
        return
    yield "playback", _state(playback)
    if playback.get("duration"):
        yield "duration", duration_text(playback["duration"])
    if playback.get("width") and playback.get("height"):
        yield "picture", _picture(playback)
    for number, track in enumerate(playback.get("tracks") or [], 1):
        yield f"track {number}", _track(track)
    if playback.get("chapters"):
        yield "chapters", str(len(playback["chapters"]))
    for rendition in playback.get("renditions") or []:
        yield f"{rendition['height']}p", _rendition(rendition)


def _state(playback: Mapping[str, Any]) -> str:
    state = str(playback.get("state"))
    detail = (playback.get("problem") or {}).get("detail")
    return ": ".join(filter(None, [STATES.get(state, state), detail]))


def _picture(playback: Mapping[str, Any]) -> str:
    rate = playback.get("frame_rate")
    return _listed(
        f"{playback['width']} x {playback['height']}",
        rate and f"{round(rate, 3):g} frames/s",
        playback.get("hdr") and f"HDR ({playback['hdr']})",
    )


def _track(track: Mapping[str, Any]) -> str:
    channels, rate = track.get("channels"), track.get("bit_rate")
    return _listed(
        track.get("kind"),
        _codec(str(track.get("codec") or "")),
        track.get("language") if track.get("language") != "und" else None,
        track.get("title"),
        channels and CHANNELS.get(channels, f"{channels} channels"),
        rate and _bit_rate(rate),
    )


def _codec(code: str) -> str:
    names = (name for start, name in CODECS.items() if code.lower().startswith(start))
    name = next(names, None)
    return f"{name} ({code})" if name and name.lower() != code.lower() else code


def _bit_rate(bits_per_second: float) -> str:
    if bits_per_second < 1_000_000:
        return f"{bits_per_second / 1000:.3g} kbit/s"
    return f"{bits_per_second / 1_000_000:.1f} Mbit/s"


def _rendition(rendition: Mapping[str, Any]) -> str:
    state = str(rendition.get("state"))
    share = f"{100 * (rendition.get('progress') or 0):.0f} %" if state == "making" else None
    return _listed(RENDITION_STATES.get(state, state), share)


def _listed(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)


def duration_text(seconds: float) -> str:
    """A length of time as players show it, such as 1:02:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
