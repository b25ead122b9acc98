"""The ordinary way to send a file, for comparison: read 4 KB, send 4 KB, again.

python -m bench.peers.read_send_server FOLDER    prints its port, serves the folder's files
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

BLOCK_BYTES = 4096


def serve(folder: Path) -> None:
    """Serve until killed: a thread a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer_all, args=(connection, folder), daemon=True).start()


def _answer_all(connection: socket.socket, folder: Path) -> None:
    with connection, connection.makefile("rb") as requests:
        while request := requests.readline():
            while requests.readline().strip():
                pass
            name = request.split()[1].decode().rsplit("/", 1)[-1]
            _send(connection, folder / name)


def _send(connection: socket.socket, path: Path) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {path.stat().st_size}\r\n\r\n"
    connection.sendall(head.encode())
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            connection.sendall(block)
    # The kernel keeps a last small segment back until the client acknowledges the one before,
    # which takes 40 ms. Switching to "no delay" sends it: the loop is not to pay for that.
    for is_on in (1, 0):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, is_on)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
