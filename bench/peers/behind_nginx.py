"""Sluice behind nginx with TLS and HTTP/2: `python -m bench.peers.behind_nginx FOLDER PORT HOST`.

nginx is set up as in deploy/, and listens once Sluice answers. Runs until SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from scripts.fleet.nginx import find_nginx, nginx, shipped_site
from scripts.fleet.programs import free_port
from tests.e2e.server_kinds import make_certificate
from tests.live_server import Server


def main(folder: Path, port: int, host: str) -> None:
    """Start both, wait, and stop both."""
    certificate = make_certificate(folder)
    settings = {"SLUICE_ACCESS": "open", "SLUICE_ALLOWED_HOSTS": host}
    server = Server(folder, settings, free_port())
    tls = f"ssl_certificate {certificate}; ssl_certificate_key {folder / 'key.pem'};"
    changes = {
        f"listen 127.0.0.1:{port};": f"listen {port} ssl http2; {tls}",
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{server.port};",
    }
    site = shipped_site(port, changes)
    program = nginx(find_nginx() or sys.exit("there is no nginx"), folder / "nginx", site, port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        server.start()
        program.start()
        signal.pause()
    finally:
        program.stop()
        server.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
