"""The nginx of `deploy/nginx.conf`, as an ordinary process in front of a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.fleet.nginx import fetching_from_bucket, find_nginx, nginx, shipped_site
from scripts.fleet.programs import free_port
from tests.browser.tools import do_without
from tests.live_server import ROOT


@contextmanager
def deployed_nginx(
    folder: Path,
    target: int,
    prefix: str = "",
    *,
    library: Path | None = None,
    link_secret: str = "",
    has_bucket: bool = False,
) -> Iterator[str]:
    """The URL of an nginx in front of the server at a port, under a prefix such as `/videos`.

    It sends the files of `library` itself; with a secret also those of signed URLs. With
    `has_bucket` it fetches them from there.
    """
    port = free_port()
    site = _adapted(port, target, prefix, library, link_secret)
    if has_bucket:
        site = fetching_from_bucket(site)
    with _nginx(folder, site, port, prefix) as url:
        yield url


@contextmanager
def bare_nginx(
    folder: Path, target: int, *, server_lines: str = "", location_lines: str = ""
) -> Iterator[str]:
    """An nginx that nobody has set up: `proxy_pass` and nothing but these lines."""
    port = free_port()
    location = f"location / {{ proxy_pass http://127.0.0.1:{target}; {location_lines} }}"
    site = f"server {{ listen 127.0.0.1:{port}; {server_lines} {location} }}"
    with _nginx(folder, site, port, "") as url:
        yield url


@contextmanager
def _nginx(folder: Path, site: str, port: int, prefix: str) -> Iterator[str]:
    program = nginx(find_nginx() or do_without("nginx"), folder, site, port)
    program.start()
    try:
        yield f"http://127.0.0.1:{port}{prefix}"
    finally:
        program.stop()


def _adapted(port: int, target: int, prefix: str, library: Path | None, link_secret: str) -> str:
    """The shipped file with other addresses, another prefix and another folder."""
    changes: dict[str, str] = {}
    if link_secret:
        links = (ROOT / "deploy" / "nginx-secure-link.conf").read_text()
        changes["#include /etc/nginx/sluice-secure-link.conf;"] = links
        changes["CHANGE-ME"] = link_secret
    changes["127.0.0.1:8000"] = f"127.0.0.1:{target}"
    if library is not None:
        changes["/var/lib/sluice/data/library/"] = f"{library}/"
    if prefix:
        changes['X-Forwarded-Prefix "";'] = f"X-Forwarded-Prefix {prefix};"
        changes["location / {"] = f"location {prefix}/ {{"
        changes["proxy_pass http://sluice;"] = "proxy_pass http://sluice/;"
    return shipped_site(port, changes)
