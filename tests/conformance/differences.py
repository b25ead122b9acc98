"""Why servers fail some cases, by server and test.

Written by hand, after checking the case, the text of the protocol and the documents of the server.
"""

from __future__ import annotations

_TUSD = {
    "test_an_unknown_upload_has_no_offset": "500 for an id with a NUL byte or of 1000 characters",
    "test_bytes_for_an_unknown_upload_are_refused_with_404": "500 for an id with a NUL byte",
    "test_terminating_an_unknown_upload_is_refused": "500 for an id with a NUL byte",
    "test_content_for_an_unknown_upload_is_refused": "500 for an id with a NUL byte",
    "test_cancelling_an_unknown_upload_is_refused": "500 for an id with a NUL byte",
    "test_a_wrong_content_type_is_refused_with_415": "400; the text says SHOULD",
    "test_the_content_type_is_case_insensitive": "The type is compared case-sensitively",
    "test_an_unknown_version_is_refused_with_412_and_the_known_ones": (
        "HEAD is not checked, on purpose, for browsers; PATCH is refused without the"
        " Tus-Version that the text asks for"
    ),
    "test_a_request_without_a_version_is_refused_with_412": (
        "HEAD is not checked, on purpose; PATCH is refused without Tus-Version"
    ),
    "test_creation_in_an_unknown_version_is_refused_with_412": "412 without Tus-Version",
    "test_termination_in_an_unknown_version_terminates_nothing": ("412 without Tus-Version"),
    "test_the_override_wins_over_any_method": "Read with POST only",
    "test_metadata_is_returned_unchanged": (
        "Kept as an unordered map of text: the order changes, and bytes that are not UTF-8 are lost"
    ),
    "test_metadata_survives_completion": "Kept as an unordered map: the order changes",
    "test_malformed_metadata_is_refused": "Malformed pairs are left out; the text says SHOULD",
    "test_the_parts_may_be_named_by_their_paths": (
        "Accepted, but returned as whole URLs instead of as they were written"
    ),
    "test_more_content_is_accepted": (
        "Accepted, but answered 204 without completeness; the drafts before -06 ask for 201 with it"
    ),
    "test_the_answer_to_an_append_has_the_offset": "204; the drafts before -06 ask for 201",
    "test_a_wrong_offset_is_a_conflict_that_names_the_right_one": "409 without Upload-Offset",
    "test_an_append_without_incomplete_is_the_last": ("Read as incomplete, as later drafts do"),
    "test_an_upload_completed_by_the_client_accepts_no_more_content": (
        "204 with the old offset; nothing is stored"
    ),
    "test_a_cancellation_with_an_offset_is_refused": "Ignored",
    "test_a_cancellation_with_completeness_is_refused": "Ignored",
    "test_a_lookup_with_an_offset_is_refused": "Ignored",
    "test_a_lookup_with_completeness_is_refused": "Ignored",
    "test_a_lookup_with_a_length_is_refused": "Ignored",
    "test_part_of_a_file_creates_an_upload_resource": "Created, but the answer lacks completeness",
    "test_an_upload_cannot_be_completed_before_its_length": "Answered 204, and left incomplete",
    "test_an_upload_cannot_be_completed_beyond_its_length": "413 instead of 400",
    "test_having_all_bytes_does_not_complete_an_upload": "The last byte completes an upload",
    "test_no_interim_response_is_sent_to_an_old_client": "Sent to HTTP/1.0 as well",
}

OWN: dict[str, str] = {
    "test_having_all_bytes_does_not_complete_an_upload": (
        "On purpose: the last missing byte completes an upload, as in every other protocol, and -12"
        " lets the server do so. The client's last request is answered as if it had done so"
    ),
}
"""Cases that our own server fails on purpose; one that passes is an error."""

DIFFERENCES: dict[str, dict[str, str]] = {"Sluice": OWN, "tusd": _TUSD}
