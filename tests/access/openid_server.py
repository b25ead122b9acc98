"""An OpenID provider, built with Authlib, at which one person is always signed in."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core.grants import OpenIDCode
from flask import Flask, Response, jsonify, request
from joserfc.jwk import KeySet, RSAKey
from werkzeug.serving import WSGIRequestHandler, make_server

CLIENT_ID, CLIENT_SECRET = "sluice", "a secret: 0%+"

ANN = {
    "sub": "ann-1",
    "email": "ann@example.org",
    "email_verified": True,
    "name": "Ann",
    "groups": ["films", "staff"],
}


@dataclass
class Provider:
    """What it says and does; tests change it."""

    issuer: str = ""
    person: dict[str, Any] = field(default_factory=lambda: dict(ANN))
    lies: dict[str, Any] = field(default_factory=dict)
    """Claims of ID tokens that replace the right ones."""
    told_apart: dict[str, Any] = field(default_factory=dict)
    """Claims that only the user info has."""
    is_out_of_order: bool = False
    signing_key: RSAKey = field(default_factory=lambda: new_key("first"))
    published_keys: list[RSAKey] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.published_keys = self.published_keys or [self.signing_key]

    def change_key(self, *, is_published: bool = True) -> None:
        """Sign with another key from now on."""
        self.signing_key = new_key(secrets.token_hex(4))
        if is_published:
            self.published_keys = [self.signing_key]


def new_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


class Client(ClientMixin):  # type: ignore[misc]
    """The one that the provider knows."""

    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.endswith("/sign-in/provider/callback")

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == CLIENT_SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return (method, endpoint) == ("client_secret_basic", "token")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class Code:
    """An authorization code, as Authlib asks for it."""

    code: str
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


def new_grant(codes: dict[str, Code]) -> type[AuthorizationCodeGrant]:
    """The grant, which keeps its codes in a dictionary."""

    class Grant(AuthorizationCodeGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

        def save_authorization_code(self, code: str, asked: Any) -> None:
            given = asked.payload.data
            names = ("redirect_uri", "scope", "nonce", "code_challenge", "code_challenge_method")
            codes[code] = Code(code, **{name: given[name] for name in names})

        def query_authorization_code(self, code: str, client: Client) -> Code | None:
            return codes.get(code)

        def delete_authorization_code(self, code: Code) -> None:
            del codes[code.code]

        def authenticate_user(self, code: Code) -> str:
            return "ann"

    return Grant


def new_id_tokens(provider: Provider) -> OpenIDCode:
    """What adds ID tokens to the answers of the token endpoint."""

    class IdTokens(OpenIDCode):  # type: ignore[misc]
        def resolve_client_private_key(self, client: Client) -> RSAKey:
            return provider.signing_key

        def get_encode_header(self, client: Client) -> dict[str, str]:
            return {"alg": "RS256", "kid": str(provider.signing_key.kid)}

        def get_client_claims(self, client: Client) -> dict[str, Any]:
            return {"iss": provider.issuer, "aud": [CLIENT_ID]}

        def exists_nonce(self, nonce: str, asked: Any) -> bool:
            return False

        def generate_user_info(self, user: str, scope: str) -> dict[str, Any]:
            return {**provider.person, **provider.lies}

    return IdTokens(require_nonce=True)


def new_server(app: Flask, provider: Provider) -> AuthorizationServer:
    """What gives out codes and tokens."""
    codes: dict[str, Code] = {}
    server = AuthorizationServer(
        app,
        query_client=lambda client_id: Client() if client_id == CLIENT_ID else None,
        save_token=lambda token, asked: None,
    )
    server.register_grant(new_grant(codes), [new_id_tokens(provider), CodeChallenge(required=True)])
    return server


def metadata_of(provider: Provider) -> dict[str, Any]:
    """Where its endpoints are (OpenID Connect Discovery)."""
    return {
        "issuer": provider.issuer,
        "authorization_endpoint": f"{provider.issuer}/authorize",
        "token_endpoint": f"{provider.issuer}/token",
        "userinfo_endpoint": f"{provider.issuer}/userinfo",
        "jwks_uri": f"{provider.issuer}/keys",
        "scopes_supported": ["openid", "email", "profile", "groups"],
    }


def new_app(provider: Provider) -> Flask:
    """The provider's web application."""
    app = Flask("provider")
    server = new_server(app, provider)

    @app.before_request
    def count() -> Response | None:
        provider.requests.append(request.path)
        return Response("down", 502) if provider.is_out_of_order else None

    @app.get("/.well-known/openid-configuration")
    def configuration() -> Response:
        return jsonify(metadata_of(provider))

    @app.get("/authorize")
    def authorize() -> Any:
        grant = server.get_consent_grant(end_user="ann")
        return server.create_authorization_response(grant_user="ann", grant=grant)

    @app.post("/token")
    def token() -> Any:
        return server.create_token_response()

    @app.get("/keys")
    def keys() -> Response:
        return jsonify(KeySet(list(provider.published_keys)).as_dict())

    @app.get("/userinfo")
    def user_info() -> Response:
        return jsonify({"sub": provider.person["sub"], **provider.told_apart})

    return app


class Quiet(WSGIRequestHandler):
    """Says nothing of requests."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@contextmanager
def running_provider() -> Iterator[Provider]:
    """A provider on a port of its own."""
    provider = Provider()
    server = make_server("127.0.0.1", 0, new_app(provider), threaded=True, request_handler=Quiet)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
