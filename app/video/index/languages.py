"""Languages of tracks as BCP 47 requires them: the shortest code."""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.video.index.boxes import Box, Fields

UNDETERMINED = "und"

_CODES = """
afr:af sqi:sq alb:sq amh:am ara:ar hye:hy arm:hy aze:az eus:eu baq:eu bel:be ben:bn bos:bs
bul:bg mya:my bur:my cat:ca zho:zh chi:zh hrv:hr ces:cs cze:cs dan:da nld:nl dut:nl eng:en
epo:eo est:et fao:fo fin:fi fra:fr fre:fr glg:gl kat:ka geo:ka deu:de ger:de ell:el gre:el
guj:gu hau:ha heb:he hin:hi hun:hu isl:is ice:is ind:id gle:ga ita:it jpn:ja jav:jv kan:kn
kaz:kk khm:km kor:ko kur:ku lao:lo lat:la lav:lv lit:lt ltz:lb mkd:mk mac:mk msa:ms may:ms
mal:ml mlt:mt mri:mi mao:mi mar:mr mon:mn nep:ne nor:no nob:nb nno:nn pan:pa fas:fa per:fa
pol:pl por:pt pus:ps que:qu ron:ro rum:ro rus:ru gla:gd srp:sr sin:si slk:sk slo:sk slv:sl
som:so spa:es swa:sw swe:sv tgl:tl tam:ta tat:tt tel:te tha:th bod:bo tib:bo tur:tr ukr:uk
urd:ur uzb:uz vie:vi cym:cy wel:cy xho:xh yid:yi yor:yo zul:zu
"""
_TWO_LETTERS: Mapping[str, str] = dict(pair.split(":") for pair in _CODES.split())
"""ISO 639-2 to 639-1, for the languages of most videos; others keep their three letters."""

_MACINTOSH_CODES = "en fr de it nl sv es da pt no he ja ar fi el is mt tr hr zh-Hant ur hi th ko"
_MACINTOSH = _MACINTOSH_CODES.split()
"""Indexed by QuickTime language code ("Language Code Values")."""

_TAG = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,8}")

_LONGEST_PRIMARY = 3
"""Letters before the first hyphen: BCP 47 allows more, but has no language that needs them."""


def read_language(packed: int, elng: Box | None) -> str:
    """The language of a track, from its `elng` box if valid, else from its `mdhd` box."""
    if elng is not None:
        fields = Fields(elng.payload)
        fields.version_and_flags()
        tag = bytes(fields.rest()).rstrip(b"\0").decode("ascii", "replace")
        if _TAG.fullmatch(tag):
            return tag
    if packed < 0x400:  # no packed letters begin so low
        return _MACINTOSH[packed] if packed < len(_MACINTOSH) else UNDETERMINED
    code = "".join(chr(0x60 + (packed >> shift & 0x1F)) for shift in (10, 5, 0))
    return shortest_code(code)


def shortest_code(code: str) -> str:
    """Shortens an ISO 639-2 code, such as "eng" to "en"; BCP 47 tags are returned unchanged."""
    return _TWO_LETTERS.get(code, code) if _TAG.fullmatch(code) else UNDETERMINED


def language_of(tag: str) -> str | None:
    """The language named by a part of a file name; None if the part is not a language tag."""
    primary, _, rest = tag.partition("-")
    if not _TAG.fullmatch(tag) or len(primary) > _LONGEST_PRIMARY:
        return None
    shortest = _TWO_LETTERS.get(primary.lower(), primary.lower())
    return f"{shortest}-{rest}" if rest else shortest
