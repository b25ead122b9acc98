"""The nginx of `deploy/nginx.conf`, as an ordinary process in front of a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.live_server import ROOT, START_SECONDS, free_port

FRAME = """
{user_line}
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/sluice.conf;
}}
"""

LOG = "/var/log/nginx/access.log"
"""Where the shipped file has the access log; in tests it is `access` in nginx's folder."""


@contextmanager
def deployed_nginx(
    folder: Path,
    target: int,
    prefix: str = "",
    *,
    library: Path | None = None,
    link_secret: str = "",
) -> Iterator[str]:
    """The URL of an nginx in front of the server at a port, under a prefix such as `/videos`.

    It sends the files of `library` itself; with a secret also those of signed URLs.
    """
    port = free_port()
    site = _adapted(port, target, prefix, library, link_secret).replace(LOG, f"{folder}/access")
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
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    folder.mkdir()
    # Started by root it would run as another user, who cannot read pytest's folders.
    user_line = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(FRAME.format(user_line=user_line, folder=folder))
    (folder / "sluice.conf").write_text(site)
    words = [program, "-c", f"{folder}/nginx.conf", "-p", str(folder), "-e", f"{folder}/errors"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}{prefix}"
        _wait_for(url, folder / "errors")
        yield url
    finally:
        process.terminate()
        process.wait()


def _adapted(port: int, target: int, prefix: str, library: Path | None, link_secret: str) -> str:
    """The shipped file with other addresses, another prefix and another folder."""
    changes = {}
    if link_secret:
        links = (ROOT / "deploy" / "nginx-secure-link.conf").read_text()
        changes["#include /etc/nginx/sluice-secure-link.conf;"] = links
        changes["CHANGE-ME"] = link_secret
    changes |= {
        "127.0.0.1:8000": f"127.0.0.1:{target}",
        "listen 80;": f"listen 127.0.0.1:{port};",
        "listen [::]:80;": "",
    }
    if library is not None:
        changes["/var/lib/sluice/data/library/"] = f"{library}/"
    if prefix:
        changes['X-Forwarded-Prefix "";'] = f"X-Forwarded-Prefix {prefix};"
        changes["location / {"] = f"location {prefix}/ {{"
        changes["proxy_pass http://sluice;"] = "proxy_pass http://sluice/;"
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    for old, new in changes.items():
        assert old in text, f"deploy/nginx.conf has no {old!r}"
        text = text.replace(old, new)
    return text


def _wait_for(url: str, errors: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            requests.get(f"{url}/healthz", timeout=5)
        except requests.ConnectionError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nginx did not start: {errors.read_text()}")
