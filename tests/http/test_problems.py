"""An error is a page for people and JSON for programs."""

import pytest
from flask import Flask
from werkzeug.exceptions import NotFound

from app.core.errors import NotMadeYet
from app.http.problems import MAX_ACCEPT_CHARACTERS, Problem, answer_json, prefers_html

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


def is_html(accept: str) -> bool:
    with Flask(__name__).test_request_context(headers={"Accept": accept}):
        return prefers_html()


@pytest.mark.parametrize("accept", [BROWSER, "text/html", "application/json;q=0.5, text/html"])
def test_people_get_a_page(accept: str) -> None:
    assert is_html(accept)


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "text/html, application/json"])
def test_programs_get_json(accept: str) -> None:
    assert not is_html(accept)


def test_an_overlong_accept_header_is_not_parsed() -> None:
    padding = " " * (MAX_ACCEPT_CHARACTERS - len("text/html, a b"))
    assert is_html(f"text/html, a{padding} b")
    assert not is_html(f"text/html, a{padding}  b")


def test_who_asks_too_early_is_told_when_to_come_back() -> None:
    with Flask(__name__).test_request_context():
        response = answer_json(Problem.of(NotMadeYet("It is being made.")))
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")


def test_a_wrong_address_is_answered_without_advice_for_typing() -> None:
    problem = Problem.of_http(NotFound())
    assert (problem.status, problem.detail) == (404, "This server has nothing at that address.")
    assert Problem.of_http(NotFound("No such film.")).detail == "No such film."
