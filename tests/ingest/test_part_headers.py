"""Names, headers and boundaries as clients write them, and invalid ones."""

import pytest

from app.core.errors import MalformedBody
from app.ingest.multipart import Field, FileBegin, parse_boundary
from tests.ingest.form_bodies import (
    BOUNDARY,
    body_of,
    disposition,
    field,
    files_of,
    part,
    refusal,
    scan,
)


@pytest.mark.parametrize(
    ("parameters", "filename"),
    [
        ('name="a"; filename="plain.mp4"', "plain.mp4"),
        ("name=a; filename=token.mp4", "token.mp4"),
        ('name="a";filename="no space.mp4"', "no space.mp4"),
        ('filename="first.mp4"; name="a"', "first.mp4"),
        ('NAME="a"; FileName="case.mp4"', "case.mp4"),
        ('name="a"; filename="x.mp4";', "x.mp4"),
        ('name="a"; filename="semi;colon=1.mp4"', "semi;colon=1.mp4"),
        ('name="a"; filename="%22quoted%22.mp4"', '"quoted".mp4'),
        ('name="a"; filename="\\"quoted\\".mp4"', '"quoted".mp4'),
        ('name="a"; filename="\\"all\\""', '"all"'),
        ('name="a"; filename="back\\\\slash"', "back\\slash"),
        ('name="a"; filename="C:\\films\\new.mp4"', "C:\\films\\new.mp4"),
        ('name="a"; filename="ends in \\"', "ends in \\"),
        ('name="a"; filename="line%0D%0Abreak"', "line%0D%0Abreak"),
        ('name="a"; filename="50%.mp4"', "50%.mp4"),
        ('name="a"; filename="Übung 日本 🎬.mp4"', "Übung 日本 🎬.mp4"),
        ('name="a"; filename="e.mp4"; filename*=UTF-8\'\'%E2%82%AC%20e.mp4', "€ e.mp4"),
        ('name="a"; filename*=utf-8\'de\'%c3%bc.mp4; filename="u.mp4"', "ü.mp4"),
        ("name=\"a\"; filename*=iso-8859-1''%FC.mp4", "ü.mp4"),
    ],
)
def test_a_file_name_is_understood_as_clients_write_it(parameters: str, filename: str) -> None:
    assert files_of(scan(disposition(parameters))) == [(FileBegin("a", filename, None), b"")]


def test_field_names_are_unescaped_too() -> None:
    assert scan(disposition('name="a %22b%22 ö"')) == [Field('a "b" ö', "")]


@pytest.mark.parametrize(
    "parameters",
    [
        "",
        'filename="x"',
        'name=""',
        'name="a\tb"',
        'name="a\x7fb"',
        'name="a\x85b"',
        'name="a"; filename="a\x00b"',
        'name="a"; filename="a\tb"',
        "name=\"a\"; filename*=UTF-8''a%00b",
        "name=\"a\"; filename*=UTF-8''a%0Ab",
        "name=\"a\"; filename*=UTF-8''%FF",
        "name=\"a\"; filename*=utf-7''a",
        'name="a"; filename*=plain',
        'name="a"; name="b"',
        'name="a"; filename="x"; FILENAME="y"',
        'name="a',
        'name="a" b',
        'name="a" filename="x"',
        "name=a b",
        "name",
    ],
)
def test_a_part_with_an_invalid_name_is_refused(parameters: str) -> None:
    assert refusal(disposition(parameters))


def test_header_names_and_the_disposition_are_case_insensitive() -> None:
    headers = 'content-DISPOSITION:Form-Data; name="a"\r\nCONTENT-type:\ttext/plain '
    assert scan(body_of(part(headers, b"1"))) == [Field("a", "1")]


@pytest.mark.parametrize("encoding", ["7bit", "8bit", "binary", "BINARY"])
def test_an_identity_transfer_encoding_is_accepted(encoding: str) -> None:
    headers = f'Content-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: {encoding}'
    assert scan(body_of(part(headers, b"1"))) == [Field("a", "1")]


GOOD = b'Content-Disposition: form-data; name="a"'


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        b"Content-Type: text/plain",
        b'Content-Disposition: attachment; name="a"',
        GOOD + b"\r\n" + GOOD,
        GOOD + b"\r\nContent-Transfer-Encoding: base64",
        GOOD + b"\r\nContent-Transfer-Encoding: quoted-printable",
        GOOD + b"\nX: 1",
        GOOD + b"\rX: 1",
        GOOD + b"\r\nX: \x00",
        GOOD + b"\r\n folded: 1",
        GOOD + b"\r\nno colon",
        GOOD + b"\r\nspace : 1",
        GOOD + b"\r\n: 1",
        GOOD.replace(b'"a"', b'"\xff"'),
    ],
)
def test_malformed_headers_are_refused(headers: bytes) -> None:
    assert refusal(body_of(part(headers, b"1")))


@pytest.mark.parametrize("after", [b"x", b" x", b"-", b" --", b"\n", b"\rx"])
def test_other_text_after_a_boundary_is_refused(after: bytes) -> None:
    body = body_of(field("a", "1"), field("b", "2"))
    assert refusal(body.replace(BOUNDARY + b"\r\n", BOUNDARY + after + b"\r\n"))


def test_bare_line_feeds_are_refused() -> None:
    assert refusal(body_of(field("a", "1")).replace(b"\r\n", b"\n"))


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ("Multipart/Form-Data;BOUNDARY=aBc", b"aBc"),
        ('multipart/form-data; boundary="a b:c"', b"a b:c"),
        ("multipart/form-data; charset=utf-8; boundary=abc", b"abc"),
        ("multipart/form-data; boundary=abc; charset=utf-8", b"abc"),
        ("multipart/form-data; boundary=abc;", b"abc"),
        ("multipart/form-data; boundary=a=b/c?", b"a=b/c?"),
        (f"multipart/form-data; boundary={'x' * 100}", b"x" * 100),
    ],
)
def test_the_boundary_is_read_from_the_content_type(content_type: str, boundary: bytes) -> None:
    assert parse_boundary(content_type) == boundary


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary=""',
        'multipart/form-data; boundary="abc',
        'multipart/form-data; boundary="ends in space "',
        "multipart/form-data; boundary=a b",
        "multipart/form-data; boundary=abc, text/plain",
        "multipart/form-data; boundary=abc; boundary=def",
        "multipart/form-data; boundary=ä",
        "multipart/form-data; boundary=a*b",
        'multipart/form-data; boundary="a\r\nb"',
        f"multipart/form-data; boundary={'x' * 101}",
        "multipart/mixed; boundary=abc",
        "application/x-www-form-urlencoded",
    ],
)
def test_a_missing_or_bad_boundary_is_refused(content_type: str) -> None:
    with pytest.raises(MalformedBody):
        parse_boundary(content_type)
