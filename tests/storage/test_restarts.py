"""Which restarts lose unsynced bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.storage.base import Durability
from app.storage.machine import after_restart_of_machine


class Machine:
    """Counts how often unsynced bytes were forgotten; `boot` changes the boot id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.forgotten = 0
        self.boot("first")

    def boot(self, boot_id: str) -> None:
        """Restart the machine."""
        (self._folder / "boot_id").write_text(boot_id + "\n")

    def start(self, durability: Durability) -> int:
        """Start a process; how often bytes were forgotten so far."""
        after_restart_of_machine(
            self._folder / "data" / "boot",
            durability,
            self._forget,
            boot_id_file=self._folder / "boot_id",
        )
        return self.forgotten

    def _forget(self) -> None:
        self.forgotten += 1


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has never run before."""
    return Machine(tmp_path)


def test_a_first_start_and_a_restart_of_the_program_forget_nothing(machine: Machine) -> None:
    assert machine.start(Durability.NONE) == 0
    assert machine.start(Durability.NONE) == 0


@pytest.mark.parametrize("durability", [Durability.FILE, Durability.NONE])
def test_a_restart_of_the_machine_forgets_unsynced_bytes_once(
    machine: Machine, durability: Durability
) -> None:
    machine.start(durability)
    machine.boot("second")
    assert machine.start(durability) == 1
    assert machine.start(durability) == 1


def test_synced_bytes_survive_a_restart_of_the_machine(machine: Machine) -> None:
    machine.start(Durability.CHUNK)
    machine.boot("second")
    assert machine.start(Durability.CHUNK) == 0


def test_a_stricter_setting_does_not_cover_earlier_bytes(machine: Machine) -> None:
    machine.start(Durability.NONE)
    machine.start(Durability.CHUNK)
    machine.boot("second")
    assert machine.start(Durability.CHUNK) == 1


def test_the_durability_in_force_when_bytes_were_received_counts(
    machine: Machine,
) -> None:
    machine.start(Durability.NONE)
    machine.boot("second")
    assert machine.start(Durability.CHUNK) == 1
