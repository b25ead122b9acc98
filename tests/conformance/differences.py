"""What is known of the cases that other servers fail, by server and test.

Written by hand, after a second look at the case, the text of the protocol and what the server says.
"""

from __future__ import annotations

_TUSD = {
    "test_what_is_not_there_has_no_offset": "500 for an id with a NUL byte or of 1000 characters",
    "test_bytes_for_what_is_not_there_are_refused_with_404": "500 for an id with a NUL byte",
    "test_ending_what_is_not_there_is_refused": "500 for an id with a NUL byte",
    "test_content_for_what_is_not_there_is_refused": "500 for an id with a NUL byte",
    "test_cancelling_what_is_not_there_is_refused": "500 for an id with a NUL byte",
    "test_another_content_type_is_refused_with_415": "400; the text says SHOULD",
    "test_the_content_type_may_be_written_in_capitals": "Compares the type letter by letter",
    "test_another_version_is_refused_with_412_and_the_known_ones": (
        "HEAD is not checked, knowingly, for the sake of browsers; PATCH is refused without the"
        " Tus-Version that the text asks for"
    ),
    "test_a_request_without_a_version_is_refused_with_412": (
        "HEAD is not checked, knowingly; PATCH is refused without Tus-Version"
    ),
    "test_creation_in_another_version_is_refused_with_412": "412 without Tus-Version",
    "test_termination_in_another_version_is_refused_and_nothing_is_ended": (
        "412 without Tus-Version"
    ),
    "test_the_override_stands_above_any_method": "Read with POST only",
    "test_metadata_is_given_back_as_it_came": (
        "Kept as an unordered map of text: the order changes, and bytes that are no UTF-8 are lost"
    ),
    "test_metadata_outlives_completion": "Kept as an unordered map: the order changes",
    "test_malformed_metadata_is_refused": "What is malformed is left out; the text says SHOULD",
    "test_the_parts_may_be_named_by_their_paths": (
        "Taken, but given back as whole URLs instead of as they were written"
    ),
    "test_more_content_is_taken": (
        "Taken, but answered 204 without completeness; the drafts before -06 ask for 201 with it"
    ),
    "test_the_answer_to_an_append_tells_the_offset": "204; the drafts before -06 ask for 201",
    "test_another_offset_is_a_conflict_that_tells_the_right_one": "409 without Upload-Offset",
    "test_an_append_that_does_not_say_incomplete_is_the_last": (
        "Read as incomplete, as later drafts do"
    ),
    "test_a_completed_upload_takes_no_more_content": "204 with the old offset; nothing is stored",
    "test_a_cancellation_that_tells_an_offset_is_refused": "Not looked at",
    "test_a_cancellation_that_tells_completeness_is_refused": "Not looked at",
    "test_a_lookup_that_tells_an_offset_is_refused": "Not looked at",
    "test_a_lookup_that_tells_completeness_is_refused": "Not looked at",
    "test_a_lookup_that_tells_a_length_is_refused": "Not looked at",
    "test_a_part_of_a_file_makes_an_upload_resource": "Made, but the answer lacks completeness",
    "test_an_upload_cannot_be_completed_before_its_length": "Answered 204, and left incomplete",
    "test_an_upload_cannot_be_completed_beyond_its_length": "413 instead of 400",
    "test_all_bytes_do_not_make_an_upload_complete": "The last missing byte completes an upload",
    "test_no_interim_response_is_sent_to_an_old_client": "Sent to HTTP/1.0 as well",
}

OWN: dict[str, str] = {
    "test_all_bytes_do_not_make_an_upload_complete": (
        "Knowingly: the last missing byte completes an upload, as in every other protocol, and -12"
        " lets the server do so. The client's last request is answered as if it had done so itself"
    ),
}
"""What our own server fails knowingly; such a case is an error once it passes."""

DIFFERENCES: dict[str, dict[str, str]] = {"Sluice": OWN, "tusd": _TUSD}
