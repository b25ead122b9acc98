"""nginx as `deploy/nginx.conf` sets it up, as an ordinary process in a folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from scripts.fleet.programs import Program, can_connect

DEPLOY = Path(__file__).parents[2] / "deploy"
SHIPPED = DEPLOY / "nginx.conf"
OWN_FILES = re.compile(r"^    location /protected/ \{$.*?^    \}$", re.DOTALL | re.MULTILINE)
"""What `nginx-bucket.conf` replaces in it."""

OVER_TLS = re.compile(r"^ *proxy_ssl_(verify|trusted).*$", re.MULTILINE)

PLACES = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
LOG = "/var/log/nginx/access.log"
"""Where the shipped file has the access log; here it is `access` in nginx's folder."""

FRAME = """
{user_line}
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 1024; }}
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


def find_nginx() -> str | None:
    """The path of nginx, also in Debian's place."""
    return shutil.which("nginx", path=PLACES)


def nginx(program: str, folder: Path, site: str, port: int) -> Program:
    """An nginx with what a site's file says, not started yet."""
    folder.mkdir()
    # Started by root it would run as another user, who may not be able to read the folder.
    user_line = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(FRAME.format(user_line=user_line, folder=folder))
    (folder / "sluice.conf").write_text(site.replace(LOG, f"{folder}/access"))
    words = (program, "-c", f"{folder}/nginx.conf", "-p", folder, "-e", f"{folder}/errors")
    return Program(words, folder / "errors", partial(can_connect, port))


def shipped_site(port: int, changes: Mapping[str, str]) -> str:
    """The shipped file for a port of this machine, with some of its text replaced."""
    text = SHIPPED.read_text()
    ours = {"listen 80;": f"listen 127.0.0.1:{port};", "listen [::]:80;": ""}
    for old, new in {**ours, **changes}.items():
        if old not in text:
            raise ValueError(f"deploy/nginx.conf has no {old!r}")
        text = text.replace(old, new)
    return text


def fetching_from_bucket(site: str) -> str:
    """A site whose nginx fetches downloads from a bucket of this machine, without TLS."""
    shipped = (DEPLOY / "nginx-bucket.conf").read_text()
    fetching = re.sub(
        r"^ *proxy_ssl_verify.*$|^ *proxy_ssl_trusted.*$", "", shipped, flags=re.MULTILINE
    )
    site, count = OWN_FILES.subn(lambda _: fetching, site)
    if not count:
        raise ValueError("deploy/nginx.conf has no location /protected/")
    return site


def fleet_site(port: int, nodes: Iterable[int]) -> str:
    """The shipped file in front of nodes on these ports: any of them takes any request.

    Downloads are fetched from the bucket: the nodes need `SLUICE_ACCEL_REDIRECT=/protected/`.
    """
    servers = " ".join(f"server 127.0.0.1:{node} fail_timeout=2s;" for node in nodes)
    # A request goes to the next node if it has not been sent to this one; if it has, only if its
    # method may be repeated, as GET and DELETE may, and no byte of a body was sent.
    changes = {
        "server 127.0.0.1:8000;": servers,
        "proxy_next_upstream off;": "proxy_next_upstream error;",
    }
    return fetching_from_bucket(shipped_site(port, changes))
