"""Which congestion control connections have."""

from __future__ import annotations

import socket
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest

from sluice_client.congestion import SYSTEM, CongestionControl, congestion_control
from sluice_client.connections import BOUNDS, BOUNDS_OF_BBR
from sluice_client.line_state import OpenSockets
from sluice_client.options import BadSetting, Options, load_options
from sluice_client.transport import Transport
from tests.client.running import SOON_SECONDS

PROC = Path("/proc/sys/net/ipv4")
SYSTEMS_OWN = (PROC / "tcp_congestion_control").read_text().strip()
AVAILABLE = (PROC / "tcp_available_congestion_control").read_text().split()


def test_the_system_has_its_own() -> None:
    assert congestion_control(SYSTEM) == CongestionControl(SYSTEMS_OWN, is_chosen=False)


def test_one_that_the_kernel_has_not_leaves_that_of_the_system() -> None:
    found = congestion_control("no-such-one")
    assert found == CongestionControl(SYSTEMS_OWN, is_chosen=False)


@pytest.mark.parametrize("name", AVAILABLE)
def test_connections_have_the_one_that_was_found(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made: SimpleQueue[socket.socket] = SimpleQueue()
    monkeypatch.setattr(OpenSockets, "add", lambda _, connection: made.put(connection))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        options = Options(
            server=f"http://127.0.0.1:{listener.getsockname()[1]}", congestion_control=name
        )
        transport = Transport(options, Event())
        transport.open_ahead(1)
        found = transport.congestion_control.name
        assert found in {name, SYSTEMS_OWN}
        opened = made.get(timeout=SOON_SECONDS)
        told = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert told.rstrip(b"\0").decode() == found
        assert transport.bounds == (BOUNDS_OF_BBR if found == "bbr" else BOUNDS)
        transport.close()


@pytest.mark.parametrize("name", [SYSTEM, SYSTEMS_OWN, "no-such-one"])
def test_connections_do_not_ask_for_that_of_the_system(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked: list[object] = []
    set_option = socket.socket.setsockopt

    def note(connection: socket.socket, level: int, option: int, *value: object) -> None:
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION):
            asked.extend(value)
        set_option(connection, level, option, *value)  # type: ignore[call-overload]

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        transport = Transport(Options(server=url, congestion_control=name), Event())
        made: SimpleQueue[socket.socket] = SimpleQueue()
        monkeypatch.setattr(OpenSockets, "add", lambda _, connection: made.put(connection))
        monkeypatch.setattr(socket.socket, "setsockopt", note)
        transport.open_ahead(1)
        made.get(timeout=SOON_SECONDS)
        transport.close()
    assert not asked


def test_a_name_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(BadSetting, match="bbr or cubic"):
        load_options({}, congestion_control="CUBIC; rm")
