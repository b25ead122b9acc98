"""Signing in at an OpenID provider, by authorization code with PKCE (OpenID Connect Core, 3.1).

The browser goes to the provider and comes back with a code. The server exchanges that for an ID
token, which says who the person is. Whose account that is here, is in `openid`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hmac import compare_digest
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry
from requests.adapters import HTTPAdapter

from app.access.recent import Recent
from app.access.sessions import PROVIDER_NAME
from app.access.signing import SingleUse
from app.core.errors import ProviderUnreachable, SignInRefused

SIGNING_ALGORITHMS = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
]
"""Those with a public key. With an HMAC, anyone who knows the client's secret could sign."""

CLOCK_SECONDS = 60
"""Maximum difference between the provider's clock and ours."""

REMEMBERED_SECONDS = 3600.0
"""Its addresses and keys are read again after an hour; keys earlier, if it signs with a new one."""

PAUSE_SECONDS = 5.0
"""A provider that did not answer is not asked again for so long."""

_PURPOSE = "openid"

_SECRET_BYTES = 32

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdClient:
    """What the operator has agreed with the provider; `name` is what people call it."""

    issuer: str
    client_id: str
    client_secret: str
    name: str = PROVIDER_NAME
    asks_groups: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderIdentity:
    """A person as the provider knows them. `subject` stays; all else may change."""

    issuer: str
    subject: str
    email: str = ""
    is_email_verified: bool = False
    name: str = ""
    groups: frozenset[str] = frozenset()

    @classmethod
    def of(cls, claims: Mapping[str, Any]) -> ProviderIdentity:
        """The person whom claims describe (OpenID Connect Core, section 5.1)."""
        groups = claims.get("groups", [])
        return cls(
            issuer=str(claims["iss"]),
            subject=str(claims["sub"]),
            email=_text(claims, "email").lower(),
            # Amazon's Cognito sends it as text.
            is_email_verified=claims.get("email_verified") in (True, "true"),
            name=_text(claims, "name"),
            groups=frozenset(map(str, groups if isinstance(groups, list) else [groups])),
        )


class OpenIdProvider:
    """One provider."""

    def __init__(self, client: OpenIdClient, tokens: SingleUse) -> None:
        self._client = client
        self._tokens = tokens
        self._metadata = _Discovery(client)
        self._keys = Recent(_keys_at, seconds=REMEMBERED_SECONDS)

    @property
    def name(self) -> str:
        """What people call it."""
        return self._client.name

    def begin(self, redirect_uri: str, *, next_path: str) -> tuple[str, str]:
        """The provider's URL to send the browser to, and the value of a cookie for it.

        `redirect_uri` is where it comes back. Raises `ProviderUnreachable`.
        """
        metadata = self._metadata.get()
        names = ("state", "nonce", "verifier")
        words = {name: secrets.token_urlsafe(_SECRET_BYTES) for name in names}
        with self._session(metadata, redirect_uri) as session:
            url, _ = session.create_authorization_url(
                metadata["authorization_endpoint"],
                state=words["state"],
                nonce=words["nonce"],
                code_verifier=words["verifier"],
            )
        return str(url), self._tokens.issue(_PURPOSE, {**words, "next": next_path})

    def finish(
        self, answer: Mapping[str, str], cookie: str, redirect_uri: str
    ) -> tuple[ProviderIdentity, str]:
        """Who the person is, and where they wanted to go.

        `answer` is the query with which the browser came back. Raises `SignInRefused`, also for an
        answer that comes a second time, and `ProviderUnreachable`.
        """
        words = self._tokens.read(_PURPOSE, cookie)
        if not compare_digest(words["state"].encode(), answer.get("state", "").encode()):
            raise SignInRefused("This sign-in was begun in another window. Begin again.")
        self._tokens.spend(words)
        metadata = self._metadata.get()
        # RFC 9207: with several providers, one could pass on the answer of another.
        if "code" not in answer or answer.get("iss", metadata["issuer"]) != metadata["issuer"]:
            raise SignInRefused(f"{self.name} did not sign you in.")
        try:
            with self._session(metadata, redirect_uri) as session, reachable(self.name):
                token = session.fetch_token(
                    metadata["token_endpoint"],
                    grant_type="authorization_code",
                    code=answer["code"],
                    code_verifier=words["verifier"],
                    allow_redirects=False,
                )
                claims = self._verified(metadata, token, words["nonce"])
                if "email" not in claims and "userinfo_endpoint" in metadata:
                    # Some providers tell only there (OpenID Connect Core, section 5.3).
                    found = session.get(metadata["userinfo_endpoint"], allow_redirects=False)
                    found.raise_for_status()
                    further = found.json()
                    if further["sub"] != claims["sub"]:
                        raise ValueError("The user info is of another person.")
                    claims = {**further, **claims}
        except (JoseError, AuthlibBaseError, ValueError, KeyError, TypeError) as error:
            log.warning("The answer of the OpenID provider was refused: %s", error)
            raise SignInRefused(f"The answer of {self.name} cannot be used.") from error
        return ProviderIdentity.of(claims), words["next"]

    def _verified(
        self, metadata: Mapping[str, Any], token: Mapping[str, Any], nonce: str
    ) -> Mapping[str, Any]:
        """The claims of the ID token (OpenID Connect Core, section 3.1.3.7)."""
        uri = metadata["jwks_uri"]
        try:
            decoded = _decode(token["id_token"], self._keys.get(uri))
        except JoseError:  # Perhaps it is signed with a key that is new.
            self._keys.forget()
            decoded = _decode(token["id_token"], self._keys.get(uri))
        required = {
            "iss": {"essential": True, "value": metadata["issuer"]},
            "aud": {"essential": True, "value": self._client.client_id},
            "nonce": {"essential": True, "value": nonce},
            "sub": {"essential": True},
        }
        parameters = {
            "client_id": self._client.client_id,
            "nonce": nonce,
            "access_token": token.get("access_token"),
        }
        claims = CodeIDToken(decoded.claims, decoded.header, required, parameters)
        claims.validate(leeway=CLOCK_SECONDS)
        return dict(claims)

    def _session(self, metadata: Mapping[str, Any], redirect_uri: str) -> OAuth2Session:
        client = self._client
        groups = " groups" if "groups" in metadata.get("scopes_supported", ()) else ""
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        session = OAuth2Session(
            client.client_id,
            client.client_secret or None,
            scope=f"openid email profile{groups if client.asks_groups else ''}",
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            token_endpoint_auth_method=method if client.client_secret else "none",
        )
        bound(session)
        return session


class _Discovery:
    """What the provider tells about itself (OpenID Connect Discovery, section 4)."""

    def __init__(self, client: OpenIdClient) -> None:
        self._client = client
        self._recent = Recent(self._read, seconds=REMEMBERED_SECONDS)
        self._asking = Lock()
        self._asked_in_vain = -PAUSE_SECONDS

    def get(self) -> Mapping[str, Any]:
        """Its addresses; raises `ProviderUnreachable`.

        One request at a time asks, and the others wait for what it learns: a provider that is down
        must not keep all threads busy.
        """
        with self._asking:
            if time.monotonic() - self._asked_in_vain < PAUSE_SECONDS:
                raise _unreachable(self._client.name)
            try:
                with reachable(self._client.name):
                    return self._recent.get(self._client.issuer) or {}
            except ProviderUnreachable:
                self._asked_in_vain = time.monotonic()
                raise

    def _read(self, issuer: str) -> Mapping[str, Any]:
        metadata = get_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if metadata.get("issuer", "").rstrip("/") != issuer.rstrip("/"):
            raise requests.exceptions.InvalidURL(f"{issuer} calls itself {metadata.get('issuer')}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if urlsplit(metadata.get(name, "")).scheme != urlsplit(issuer).scheme:
                raise requests.exceptions.InvalidURL(f"{issuer} has no usable {name}")
        return metadata


@contextmanager
def reachable(name: str) -> Iterator[None]:
    """Errors of the network, and of a provider that is out of order, as ours."""
    try:
        yield
    except requests.RequestException as error:
        log.warning("The OpenID provider cannot be used: %s", error)
        raise _unreachable(name) from error


def _unreachable(name: str) -> ProviderUnreachable:
    return ProviderUnreachable(
        f"{name} cannot be reached at the moment. Try again later, or sign in another way."
    )


def _keys_at(uri: str) -> KeySet:
    return KeySet.import_key_set(get_json(uri))  # type: ignore[arg-type]


def _decode(token: str, keys: KeySet | None) -> jwt.Token:
    registry = JWSRegistry(algorithms=SIGNING_ALGORITHMS, strict_check_header=False)
    return jwt.decode(token, keys or KeySet([]), registry=registry)


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return value.strip() if isinstance(value, str) else ""


# ---- requests to the provider --------------------------------------------------------------------

# With limits on time and on the size of the response.

CONNECT_SECONDS = 5.0

IDLE_SECONDS = 10.0
"""A server that sends nothing for this long is taken for dead."""

ANSWER_SECONDS = 20.0
"""Time limit for a whole response, however slowly its bytes come."""

MAX_ANSWER_BYTES = 1024 * 1024
"""Sets of keys and ID tokens have a few thousand bytes."""

_BLOCK_BYTES = 16 * 1024


class BoundedAdapter(HTTPAdapter):
    """Reads answers within these limits, or raises `requests.RequestException`."""

    def send(self, request: requests.PreparedRequest, *_: Any, **options: Any) -> requests.Response:
        """Send the request, and read the whole answer."""
        deadline = time.monotonic() + ANSWER_SECONDS
        limits = {"stream": True, "timeout": (CONNECT_SECONDS, IDLE_SECONDS)}
        answer = super().send(request, **{**options, **limits})
        body = bytearray()
        for block in answer.iter_content(_BLOCK_BYTES):
            body += block
            if len(body) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
                answer.close()
                raise requests.exceptions.ContentDecodingError(f"{request.url} sends too much")
        answer._content = bytes(body)  # Where `requests` keeps what it has read.
        return answer


def bound(session: requests.Session) -> None:
    """Let all requests of a session keep to the limits."""
    for prefix in ("https://", "http://"):
        session.mount(prefix, BoundedAdapter())


def get_json(url: str) -> Mapping[str, Any]:
    """The JSON object at `url`; raises `requests.RequestException`, for redirects too."""
    with requests.Session() as session:
        bound(session)
        answer = session.get(url, headers={"Accept": "application/json"}, allow_redirects=False)
        answer.raise_for_status()
        found = answer.json()
    if answer.status_code != 200 or not isinstance(found, dict):
        raise requests.exceptions.InvalidJSONError(f"{url} does not answer with an object")
    return found
