"""Knows whether bytes that were never forced to the disk can still be trusted.

With a durability below `chunk` the records may outlive bytes they speak of: a power cut loses
what the kernel had not written yet. A restart of the machine shows in the kernel's boot id.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from app.storage.base import Durability

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def after_restart_of_machine(
    marker: Path, durability: Durability, forget_unsynced: Callable[[], None]
) -> None:
    """Call `forget_unsynced` if the machine restarted since bytes were taken without syncing them.

    Every process calls this before it serves; they take turns, and only the first one finds
    anything to do. `marker` is a file of ours that keeps the boot id and the durability.
    """
    marker.parent.mkdir(parents=True, exist_ok=True)
    boot_id = BOOT_ID.read_text().strip()
    with marker.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        old_boot_id, _, old_durability = file.read().strip().partition(" ")
        has_unsynced = old_durability not in {"", Durability.CHUNK}
        if old_boot_id == boot_id and (has_unsynced or old_durability == durability):
            return  # A stricter setting does not reach the bytes taken before it.
        if has_unsynced:
            forget_unsynced()
        file.truncate(0)
        file.write(f"{boot_id} {durability}")
        file.flush()
        os.fsync(file.fileno())
