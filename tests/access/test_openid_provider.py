"""Signing in at an OpenID provider, as far as who somebody is."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
import requests

from app.access import openid_provider
from app.access.openid_provider import OpenIdClient, OpenIdProvider, ProviderIdentity
from app.access.signing import Signing, SingleUse
from app.core.errors import ProviderUnreachable, SignInRefused
from app.db.nodes import SharedValues
from tests.access.openid_server import CLIENT_ID, CLIENT_SECRET, Provider, running_provider
from tests.access.world import World, new_world

BACK = "https://videos.example/sign-in/provider/callback"


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Iterator[Provider]:
    """As it was in the beginning."""
    before = {**vars(running), "person": dict(running.person)}
    running.requests.clear()
    yield running
    vars(running).update(before)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with new_world(tmp_path_factory.mktemp("openid")) as world:
        yield world


@pytest.fixture
def ours(provider: Provider, world: World) -> OpenIdProvider:
    """Our side of it, which knows nothing of the provider yet."""
    return new_client(provider.issuer, world)


def new_client(issuer: str, world: World) -> OpenIdProvider:
    tokens = SingleUse(world.context, Signing(SharedValues(world.database)))
    client = OpenIdClient(
        issuer=issuer,
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        name="Example",
        asks_groups=True,
    )
    return OpenIdProvider(client, tokens)


def sent_back(url: str) -> dict[str, str]:
    """The query with which the provider sends a browser back that came to `url`."""
    answer = requests.get(url, allow_redirects=False, timeout=60)
    assert answer.status_code == 302, answer.text
    assert answer.headers["Location"].startswith(BACK)
    return dict(parse_qsl(urlsplit(answer.headers["Location"]).query))


def signed_in(ours: OpenIdProvider) -> ProviderIdentity:
    url, cookie = ours.begin(BACK, next_path="/watch/1")
    identity, next_path = ours.finish(sent_back(url), cookie, BACK)
    assert next_path == "/watch/1"
    return identity


def test_the_provider_says_who_somebody_is(provider: Provider, ours: OpenIdProvider) -> None:
    assert signed_in(ours) == ProviderIdentity(
        issuer=provider.issuer,
        subject="ann-1",
        email="ann@example.org",
        is_email_verified=True,
        name="Ann",
        groups=frozenset({"films", "staff"}),
    )


def test_the_browser_takes_a_challenge_along_and_not_what_answers_it(ours: OpenIdProvider) -> None:
    url, _ = ours.begin(BACK, next_path="/")
    query = parse_qs(urlsplit(url).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["scope"] == ["openid email profile groups"]
    assert {"state", "nonce", "code_challenge"} <= query.keys()
    assert "code_verifier" not in query


def test_addresses_and_keys_are_read_once(provider: Provider, ours: OpenIdProvider) -> None:
    for _ in range(2):
        signed_in(ours)
    assert provider.requests.count("/.well-known/openid-configuration") == 1
    assert provider.requests.count("/keys") == 1


def test_an_answer_works_once(provider: Provider, ours: OpenIdProvider) -> None:
    url, cookie = ours.begin(BACK, next_path="/")
    answer = sent_back(url)
    ours.finish(answer, cookie, BACK)
    provider.requests.clear()
    with pytest.raises(SignInRefused, match="used before"):
        ours.finish(answer, cookie, BACK)
    assert provider.requests == []


def test_an_answer_with_another_state_is_refused_unasked(
    provider: Provider, ours: OpenIdProvider
) -> None:
    url, cookie = ours.begin(BACK, next_path="/")
    answer = sent_back(url)
    other_url, _ = ours.begin(BACK, next_path="/")
    provider.requests.clear()
    for wrong in ({**answer, "state": "ü"}, {"code": answer["code"]}, {}):
        with pytest.raises(SignInRefused, match="another window"):
            ours.finish(wrong, cookie, BACK)
    for forged in ("", cookie[:-3], "x" * 5000):
        with pytest.raises(SignInRefused):
            ours.finish(answer, forged, BACK)
    assert provider.requests == []
    with pytest.raises(SignInRefused, match="another window"):
        ours.finish(sent_back(other_url), cookie, BACK)


def test_a_code_that_belongs_to_another_sign_in_is_refused(ours: OpenIdProvider) -> None:
    """Its challenge does not match, nor would its nonce."""
    stolen = sent_back(ours.begin(BACK, next_path="/")[0])["code"]
    url, cookie = ours.begin(BACK, next_path="/")
    with pytest.raises(SignInRefused, match="cannot be used"):
        ours.finish({**sent_back(url), "code": stolen}, cookie, BACK)


@pytest.mark.parametrize(
    "lies",
    [
        {"nonce": "other"},
        {"nonce": None},
        {"aud": ["other"]},
        {"aud": [CLIENT_ID, "other"], "azp": "other"},
        {"iss": "https://evil.example"},
        {"exp": 1_700_000_000},  # In 2023.
        {"exp": None},
        {"sub": None},
        {"at_hash": "AAAA"},
    ],
    ids=str,
)
def test_an_id_token_that_is_not_for_us_now_is_refused(
    provider: Provider, ours: OpenIdProvider, lies: dict[str, object]
) -> None:
    provider.lies = lies
    with pytest.raises(SignInRefused, match="cannot be used"):
        signed_in(ours)


def test_an_answer_of_another_provider_is_refused(ours: OpenIdProvider) -> None:
    url, cookie = ours.begin(BACK, next_path="/")
    with pytest.raises(SignInRefused):
        ours.finish({**sent_back(url), "iss": "https://evil.example"}, cookie, BACK)


def test_somebody_who_refuses_at_the_provider_is_not_signed_in(ours: OpenIdProvider) -> None:
    url, cookie = ours.begin(BACK, next_path="/")
    state = parse_qs(urlsplit(url).query)["state"][0]
    with pytest.raises(SignInRefused, match="Example did not sign you in"):
        ours.finish({"error": "access_denied", "state": state}, cookie, BACK)


def test_a_new_key_is_read_as_soon_as_the_provider_uses_it(
    provider: Provider, ours: OpenIdProvider
) -> None:
    signed_in(ours)
    provider.change_key()
    assert signed_in(ours).subject == "ann-1"


def test_a_key_that_the_provider_does_not_publish_signs_nothing(
    provider: Provider, ours: OpenIdProvider
) -> None:
    provider.change_key(is_published=False)
    with pytest.raises(SignInRefused, match="cannot be used"):
        signed_in(ours)


def test_what_the_id_token_lacks_is_read_from_the_user_info(
    provider: Provider, ours: OpenIdProvider
) -> None:
    del provider.person["email"], provider.person["email_verified"]
    provider.told_apart = {"email": "Ann@Example.org", "email_verified": "true"}
    identity = signed_in(ours)
    assert (identity.email, identity.is_email_verified) == ("ann@example.org", True)
    provider.told_apart["sub"] = "somebody else"
    with pytest.raises(SignInRefused, match="cannot be used"):
        signed_in(ours)


def test_a_provider_that_is_out_of_order_is_not_asked_again_at_once(
    provider: Provider, ours: OpenIdProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openid_provider, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    provider.is_out_of_order = True
    for _ in range(3):
        with pytest.raises(ProviderUnreachable, match="Example cannot be reached"):
            ours.begin(BACK, next_path="/")
    assert len(provider.requests) == 1


def test_a_provider_that_fails_halfway_is_out_of_reach(
    provider: Provider, ours: OpenIdProvider
) -> None:
    url, cookie = ours.begin(BACK, next_path="/")
    answer = sent_back(url)
    provider.is_out_of_order = True
    with pytest.raises(ProviderUnreachable):
        ours.finish(answer, cookie, BACK)


def test_a_provider_that_calls_itself_otherwise_is_not_used(
    provider: Provider, world: World
) -> None:
    issuer = provider.issuer.replace("127.0.0.1", "localhost")
    with pytest.raises(ProviderUnreachable):
        new_client(issuer, world).begin(BACK, next_path="/")


def test_nobody_listens_where_the_provider_should_be(world: World) -> None:
    with pytest.raises(ProviderUnreachable):
        new_client("http://127.0.0.1:9", world).begin(BACK, next_path="/")
