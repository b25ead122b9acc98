"""Tests `make run` at a terminal: open the page, upload a file, fetch it back, press Ctrl-C.

`scripts/bare-machine` runs it with the standard library alone. It exits with 1 if anything fails.
"""

from __future__ import annotations

import os
import pty
import re
import socket
import sys
import threading
import time
import urllib.request

START_SECONDS = 600
STOP_SECONDS = 60
CTRL_C = b"\x03"
CONTENT = os.urandom(30_000_000)
BOUNDARY = "bare-machine"


def main() -> int:
    """0 if everything worked."""
    port = free_port()
    os.environ["SLUICE_PORT"] = str(port)
    started = time.monotonic()
    process, terminal = pty.fork()
    if process == 0:
        os.execvp("make", ["make", "run"])
    threading.Thread(target=show, args=(terminal,), daemon=True).start()
    if not wait_for(f"http://127.0.0.1:{port}/healthz", process):
        return 1
    print(f"smoke: serves after {time.monotonic() - started:.1f} s", flush=True)
    files = open_page(f"http://127.0.0.1:{port}")
    print(f"smoke: the page answers, and so do the {files} files that it names", flush=True)
    is_equal = upload_and_fetch(f"http://127.0.0.1:{port}") == CONTENT
    print(f"smoke: the download {'equals' if is_equal else 'DIFFERS from'} the upload", flush=True)
    pressed = time.monotonic()
    os.write(terminal, CTRL_C)
    status = wait_for_end(process)
    print(f"smoke: ended with {status} {time.monotonic() - pressed:.1f} s after Ctrl-C", flush=True)
    return 0 if is_equal and status is not None else 1


def free_port() -> int:
    """A free port; the machine shares those of its host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def show(terminal: int) -> None:
    """What `make run` prints."""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # its last process has ended
            return
        sys.stdout.buffer.write(piece)
        sys.stdout.flush()


def wait_for(url: str, process: int) -> bool:
    """Whether it answers before the process ends."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and os.waitpid(process, os.WNOHANG) == (0, 0):
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return True
    return False


def open_page(url: str) -> int:
    """Fetch the page and the files that it names, such as scripts; returns their number."""
    with urllib.request.urlopen(url, timeout=60) as response:
        page = response.read().decode()
    paths = set(re.findall(r'"(/static/[^"]+)"', page))
    for path in paths:
        urllib.request.urlopen(url + path, timeout=60).close()
    return len(paths)


def upload_and_fetch(url: str) -> bytes:
    """Upload a file by a form, and return its download."""
    body = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="film.mp4"\r\n\r\n'
    ).encode()
    body += CONTENT + f"\r\n--{BOUNDARY}--\r\n".encode()
    headers = {
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
        "Accept": "application/json",
    }
    request = urllib.request.Request(f"{url}/upload", body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = response.read().decode()
    upload_id = answer.partition('"id":')[2].split('"')[1]
    with urllib.request.urlopen(f"{url}/media/{upload_id}", timeout=60) as response:
        content: bytes = response.read()
        return content


def wait_for_end(process: int) -> int | None:
    """Its exit status; None if it does not end in time."""
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    return None


if __name__ == "__main__":
    sys.exit(main())
