"""Serves a folder with FTP: `python -m bench.peers.ftp_server PORT FOLDER`."""

from __future__ import annotations

import logging
import sys

from pyftpdlib import (  # type: ignore[import-untyped]  # it has none
    authorizers,
    handlers,
    servers,
)


class Handler(handlers.FTPHandler):  # type: ignore[misc]  # for the same reason
    """Anybody may read."""

    authorizer = authorizers.DummyAuthorizer()


def main() -> None:
    """Serve until killed."""
    port, folder = int(sys.argv[1]), sys.argv[2]
    logging.basicConfig(level=logging.WARNING)
    Handler.authorizer.add_anonymous(folder)
    servers.FTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
