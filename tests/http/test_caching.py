"""What caches and browsers may keep: nothing that depends on who asks."""

from __future__ import annotations

import pytest
from werkzeug.test import TestResponse

from app.core.access import Action, Role
from app.http.access import rules_of
from tests.access.test_matrix import EXAMPLES, THINGS
from tests.site import BY_SOMEBODY, HTML, Site

MAY_KEEP = ("no-store", "private, no-cache")


def get(site: Site, url: str, **headers: str) -> TestResponse:
    person = site.person("Ann", Role.MANAGER, is_admin=True)
    return site.client(person).get(url, headers=headers)


def test_every_response_keeps_caches_from_giving_it_to_others(site: Site) -> None:
    wrong, urls = [], site.app.url_map.bind("localhost")
    rules = rules_of(site.app)
    for rule in site.app.url_map.iter_rules():
        if "GET" not in (rule.methods or set()) or rule.endpoint == "static":
            continue
        values = {
            part: THINGS[part](site, rule, BY_SOMEBODY) if part in THINGS else EXAMPLES[part]
            for part in rule.arguments
        }
        url = str(urls.build(rule.endpoint, values))
        for headers in (HTML, {"Accept": "application/json"}):
            answer = get(site, url, **headers)
            answer.close()
            control = answer.headers.get("Cache-Control", "")
            is_public = rules[rule.endpoint].action is Action.VISIT and "public" in control
            if not control.startswith(MAY_KEEP) and not is_public:
                wrong.append(f"{url}: {answer.status_code} {control!r}")
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize("url", ["/", "/api/videos", "/nowhere", "/api/uploads/nothing"])
def test_refusals_are_not_kept_either(site: Site, url: str) -> None:
    for headers in (HTML, {}):
        answer = site.client().get(url, headers=headers)
        assert answer.status_code >= 300
        assert answer.headers["Cache-Control"] == "no-store"


def test_static_files_are_kept_and_checked(site: Site) -> None:
    answer = site.client().get("/static/css/base.css")
    assert "no-store" not in answer.headers["Cache-Control"]
    assert answer.headers["ETag"]
    answer.close()


def test_signing_out_empties_the_cache_of_the_browser(site: Site) -> None:
    person = site.person("Ann")
    for method, url in (("POST", "/sign-out"), ("DELETE", "/api/session")):
        answer = site.client(person).open(url, method=method)
        assert answer.headers["Clear-Site-Data"] == '"cache"'
