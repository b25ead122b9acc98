"""Pictures of a high dynamic range for screens of the standard one, as filters of ffmpeg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.video.index.sample_entries import HighDynamicRange

_TRANSFERS: Mapping[HighDynamicRange, str] = {"pq": "smpte2084", "hlg": "arib-std-b67"}


def tone_mappings(hdr: HighDynamicRange | None) -> Sequence[str]:
    """Filters that make BT.709 of such a picture, to be tried in this order.

    The last is none: a picture that this ffmpeg cannot map is shown as it is.
    """
    return [_tone_mapped(_TRANSFERS[hdr]), ""] if hdr else [""]


def _tone_mapped(transfer: str) -> str:
    source = f"transferin={transfer}:primariesin=bt2020:matrixin=bt2020nc"
    linear = f"format=yuv444p10le,zscale={source}:transfer=linear:npl=100,format=gbrpf32le"
    mapped = "zscale=primaries=bt709,tonemap=hable:desat=0"
    return f"{linear},{mapped},zscale=transfer=bt709:matrix=bt709:range=limited,format=yuv444p"
