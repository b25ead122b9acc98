"""What the scanner accepts, what it refuses, and what it passes on unchanged."""

from collections.abc import Iterator

import pytest

from app.core.errors import MalformedBody
from app.ingest.multipart import (
    FIELD_BYTES_OF_A_FILE,
    FIELDS_OF_A_FILE,
    MAX_ALL_FIELDS_BYTES,
    MAX_FIELD_BYTES,
    MAX_FIELDS,
    MAX_HEADER_BYTES,
    MAX_PREAMBLE_BYTES,
    End,
    Field,
    FileBegin,
    FileData,
    FileEnd,
    MultipartScanner,
)
from tests.ingest.form_bodies import (
    BOUNDARY,
    CLOSING,
    DELIMITER,
    READ,
    blocks_of,
    body_of,
    disposition,
    events_of,
    events_until_need_data,
    field,
    file,
    files_of,
    join,
    part,
    refusal,
    scan,
    scan_taking,
)

NASTY_PAYLOADS = {
    "empty": b"",
    "ends in CR": b"x\r",
    "ends in CRLF": b"x\r\n",
    "ends in a hyphen": b"x\r\n-",
    "ends in two hyphens": b"x\r\n--",
    "ends in all but the last byte of a delimiter": b"x" + DELIMITER[:-1],
    "begins like a delimiter": DELIMITER[2:] + b"\r\n",
    "is CRLF": b"\r\n",
    "is many CR": b"\r" * 100,
    "is many beginnings": DELIMITER[:-1] * 5,
    "is doubled CR before a delimiter": b"\r" + DELIMITER[:-2] + b"\r\r",
    "contains the boundary in a line": b"text --" + BOUNDARY + b"\r\n",
    "contains the delimiter without CR": b"\n--" + BOUNDARY + b"--\r\n",
    "contains NUL": bytes(range(256)),
}


@pytest.mark.parametrize("payload", NASTY_PAYLOADS.values(), ids=NASTY_PAYLOADS)
def test_a_payload_arrives_unchanged_wherever_it_is_cut(payload: bytes) -> None:
    body = body_of(field("a", "1"), file(payload), field("b", "2"))
    expected = [
        Field("a", "1"),
        (FileBegin("file", "clip.mp4", "video/mp4"), payload),
        Field("b", "2"),
    ]
    assert scan(*blocks_of(body, 1)) == expected
    for cut in range(len(body) + 1):
        assert scan(body[:cut], body[cut:]) == expected
    for cut in range(len(body) - 3):
        assert scan(body[:cut], body[cut : cut + 3], body[cut + 3 :]) == expected


@pytest.mark.parametrize("remainder", [0, 1, 2, 3, 4, 5, READ - 1])
@pytest.mark.parametrize("last", [b"x", b"\r", b"\r\n"])
def test_a_final_read_of_any_length_neither_adds_nor_loses_a_byte(
    remainder: int, last: bytes
) -> None:
    frame = len(body_of(field("a", "1"), file(last)))
    payload = b"v" * ((remainder - frame) % READ + READ) + last
    body = body_of(field("a", "1"), file(payload))
    assert len(body) % READ == remainder
    assert scan(*blocks_of(body, READ))[1] == (
        FileBegin("file", "clip.mp4", "video/mp4"),
        payload,
    )


def test_a_payload_is_passed_on_as_slices_of_what_was_received() -> None:
    received = body_of(file(b"v" * READ))
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(received)
    events = list(events_until_need_data(scanner))
    assert [event.data.obj is received for event in events if isinstance(event, FileData)] == [True]


def test_no_more_than_the_start_of_a_delimiter_is_held_back() -> None:
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(body_of(file(b"")).removesuffix(CLOSING))
    list(events_until_need_data(scanner))
    held = 0
    for byte in blocks_of(DELIMITER[:-1] * 3 + b"\rx" + DELIMITER[:5], 1):
        scanner.receive_data(byte)
        passed = [e.data for e in events_until_need_data(scanner) if isinstance(e, FileData)]
        held += 1 - sum(map(len, passed))
        assert 0 <= held < len(DELIMITER)


def test_a_slice_of_a_buffer_can_be_fed() -> None:
    body = body_of(file(b"payload"))
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(memoryview(b"####" + body + b"####")[4:-4])
    assert join(events_until_need_data(scanner))[0][1] == b"payload"  # type: ignore[index]


def test_after_need_data_the_fed_buffer_is_released() -> None:
    buffer = bytearray(body_of(file(b"payload"))[:-20])
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(buffer)
    for event in events_until_need_data(scanner):
        del event
    buffer.clear()  # Raises BufferError while anything still refers to it.


def test_a_file_may_come_before_the_fields() -> None:
    parts = scan(body_of(file(b"payload"), field("a", "1"), field("b", "")))
    assert parts[1:] == [Field("a", "1"), Field("b", "")]


def test_several_files_come_one_after_the_other() -> None:
    parts = scan(body_of(file(b"1", "a"), file(b"", "b"), file(b"3", "a")))
    assert [(begin.name, payload) for begin, payload in files_of(parts)] == [
        ("a", b"1"),
        ("b", b""),
        ("a", b"3"),
    ]


def test_more_files_than_fields_are_allowed() -> None:
    assert len(scan(body_of(*[file(b"")] * (MAX_FIELDS + 1)))) == MAX_FIELDS + 1


def test_a_body_may_have_no_parts() -> None:
    assert scan(b"--" + BOUNDARY + b"--") == []


def test_an_empty_file_name_makes_a_file_and_a_missing_one_a_field() -> None:
    assert files_of(scan(disposition('name="a"; filename=""'))) == [(FileBegin("a", "", None), b"")]
    assert scan(disposition('name="a"')) == [Field("a", "")]


def test_a_preamble_and_an_epilogue_are_ignored() -> None:
    body = b"This is a form.\r\n" + body_of(field("a", "1")) + b"over" + DELIMITER
    assert scan(body) == [Field("a", "1")]
    assert scan(*blocks_of(body, 1)) == [Field("a", "1")]


def test_spaces_and_tabs_may_follow_a_boundary() -> None:
    body = body_of(field("a", "1"), field("b", "2"))
    padded = body.replace(BOUNDARY + b"\r\n", BOUNDARY + b" \t \r\n")
    assert scan(padded) == [Field("a", "1"), Field("b", "2")]


def test_after_the_end_further_bytes_change_nothing() -> None:
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(body_of(field("a", "1")))
    assert list(events_until_need_data(scanner)) == [Field("a", "1")]
    for _ in range(2):
        scanner.receive_data(b"epilogue")
    scanner.receive_end()
    assert scanner.next_event() == End()


def test_feeding_before_the_events_are_read_is_an_error() -> None:
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(b"--")
    with pytest.raises(RuntimeError):
        scanner.receive_data(BOUNDARY)


@pytest.mark.parametrize("block", [1, 2, 3, 17, 80, 100, 4096])
def test_a_payload_read_by_length_may_contain_delimiters(block: int) -> None:
    payload = b"\r\n" + CLOSING + DELIMITER + b"\r\nContent-Disposition: form-data\r\n\r\n\r"
    body = body_of(field("a", "1"), file(payload), file(b"", "empty"), field("b", "2"))
    parts = scan_taking(body, [len(payload), 0], block=block)
    assert [payload for _, payload in files_of(parts)] == [payload, b""]
    assert [part for part in parts if isinstance(part, Field)] == [
        Field("a", "1"),
        Field("b", "2"),
    ]


@pytest.mark.parametrize("block", [1, 7, 4096])
@pytest.mark.parametrize("wrong_by", [-1, 1, 2, 8])
def test_a_length_that_misses_the_delimiter_is_refused(block: int, wrong_by: int) -> None:
    body = body_of(file(b"payload"))
    with pytest.raises(MalformedBody):
        scan_taking(body, [7 + wrong_by], block=block)


def test_a_read_payload_is_a_view_no_longer_than_requested() -> None:
    received = body_of(file(b"payload"))
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(received)
    assert isinstance(scanner.next_event(), FileBegin)
    taken = scanner.take_payload(7)
    assert (taken.obj is received, bytes(taken)) == (True, b"payload")
    assert [scanner.next_event(), scanner.next_event()] == [FileEnd(), End()]


def test_a_body_that_ends_right_after_a_payload_is_refused() -> None:
    for missing in range(3, len(CLOSING)):
        with pytest.raises(MalformedBody):
            scan_taking(body_of(file(b"payload"))[:-missing], [7], block=4096)


def test_a_payload_can_be_read_by_length_only_from_its_start() -> None:
    scanner = MultipartScanner(BOUNDARY)
    with pytest.raises(RuntimeError):
        scanner.take_payload(1)
    scanner.receive_data(body_of(file(b"payload")))
    assert isinstance(scanner.next_event(), FileBegin)
    assert isinstance(scanner.next_event(), FileData)
    with pytest.raises(RuntimeError):
        scanner.take_payload(1)
    assert scanner.next_event() == FileEnd()


def test_a_negative_length_is_an_error_and_changes_nothing() -> None:
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(body_of(file(b"payload")))
    assert isinstance(scanner.next_event(), FileBegin)
    with pytest.raises(ValueError, match="negative"):
        scanner.take_payload(-1)
    assert isinstance(scanner.next_event(), FileData)


def test_the_headers_of_a_part_are_bounded() -> None:
    line = b'Content-Disposition: form-data; name="a"' + b"\r\nX: "
    fitting = line + b"x" * (MAX_HEADER_BYTES - len(line) - len(b"\r\n\r\n\r\n"))
    assert scan(body_of(part(fitting, b"1"))) == [Field("a", "1")]
    assert refusal(body_of(part(fitting + b"x", b"1"))) == "The headers of a part are too long."


def test_endless_headers_are_refused_before_they_are_buffered() -> None:
    fed = 0

    def endless() -> Iterator[bytes]:
        nonlocal fed
        yield b"--" + BOUNDARY + b"\r\n"
        while True:
            fed += 1000
            yield b"x" * 1000

    with pytest.raises(MalformedBody):
        join(events_of(endless()))
    assert fed < MAX_HEADER_BYTES + 1000


def test_the_value_of_a_field_is_bounded() -> None:
    fitting = "v" * MAX_FIELD_BYTES
    assert scan(body_of(field("a", fitting))) == [Field("a", fitting)]
    body = body_of(field("a", fitting + "v"))
    assert refusal(body) == "The value of a field is too long."
    with pytest.raises(MalformedBody):
        scan(*blocks_of(body, 1000))


def test_the_number_of_fields_is_bounded() -> None:
    assert len(scan(body_of(*[field("a", "1")] * MAX_FIELDS))) == MAX_FIELDS
    assert (
        refusal(body_of(*[field("a", "1")] * (MAX_FIELDS + 1))) == "The form has too many fields."
    )


def test_each_named_file_may_have_two_fields_before_it() -> None:
    two = [field("a", "1")] * FIELDS_OF_A_FILE
    parts = [*two, file(b"")] * MAX_FIELDS + two * (MAX_FIELDS // FIELDS_OF_A_FILE)
    assert scan(body_of(*parts)).count(Field("a", "1")) == (FIELDS_OF_A_FILE + 1) * MAX_FIELDS
    assert refusal(body_of(*parts, field("a", "1"))) == "The form has too many fields."


def test_an_unnamed_file_allows_no_further_fields() -> None:
    parts = [file(b"", filename=""), field("a", "1")] * (MAX_FIELDS + 1)
    assert refusal(body_of(*parts)) == "The form has too many fields."


def test_the_fields_of_many_files_may_be_longer_together() -> None:
    parts = [field("a", "v" * (FIELD_BYTES_OF_A_FILE - 1)), file(b"")] * 2048
    assert len(scan(body_of(*parts))) > 2048


def test_names_and_values_of_all_fields_together_are_bounded() -> None:
    fitting = [field("a" * 1024, "v" * 1024)] * (MAX_ALL_FIELDS_BYTES // 2048)
    assert len(scan(body_of(*fitting))) == len(fitting)
    for one_more in (field("a", ""), field("a", "v")):
        assert refusal(body_of(*fitting, one_more)) == "The fields of the form are too long."


def test_the_preamble_is_bounded() -> None:
    body = DELIMITER + b"--"
    assert scan(b"x" * (MAX_PREAMBLE_BYTES - 2) + body) == []
    for size in (1000, MAX_PREAMBLE_BYTES * 2):
        with pytest.raises(MalformedBody):
            scan(*blocks_of(b"x" * (MAX_PREAMBLE_BYTES - 1) + body, size))


@pytest.mark.parametrize("end", [b"", DELIMITER[:-1], DELIMITER, DELIMITER + b"-"])
def test_a_body_without_its_closing_delimiter_is_refused(end: bytes) -> None:
    body = body_of(field("a", "1"), file(b"payload")).removesuffix(CLOSING) + end
    assert refusal(body) == "The body ends before its closing boundary."


def test_an_empty_body_is_refused() -> None:
    assert refusal(b"")


def test_a_refused_body_stays_refused() -> None:
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(body_of(part("no colon"), field("a", "1")))
    for _ in range(3):
        with pytest.raises(MalformedBody):
            scanner.next_event()


def test_a_field_that_is_not_utf_8_is_refused() -> None:
    assert refusal(body_of(field("a", b"\xff")))
