"""What the disk and the kernel do without us: `dd` and `cp`, run beside every other case."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bench.lib.harness import Lab
from bench.lib.samples import Sample
from bench.lib.uploading import CHUNK_BYTES

DD = "dd bs=20M"
DD_SYNCED = "dd bs=20M conv=fdatasync"
DD_EACH_BLOCK_SYNCED = "dd bs=20M oflag=dsync"

CP, CP_SYNCED = "cp", "cp, then sync"

TIMEOUT_SECONDS = 300


def measure_dd(lab: Lab, round_number: int, case: str, length: int) -> None:
    """Write zeros: not synced, synced once at the end, synced after each block."""
    for command_line in (DD, DD_SYNCED, DD_EACH_BLOCK_SYNCED):
        flags = command_line.split()[2:]
        with lab.scratch("dd") as folder:
            lab.settle()
            target = folder / "zeros"
            command = ["dd", "if=/dev/zero", f"of={target}", f"bs={CHUNK_BYTES}"]
            seconds = _timed([*command, f"count={length // CHUNK_BYTES}", *flags])
        count = length // CHUNK_BYTES * CHUNK_BYTES
        name = f"{case}, {command_line}"
        lab.keep(Sample(case=name, round=round_number, byte_count=count, seconds=seconds))


def measure_cp(lab: Lab, round_number: int, case: str, source: Path) -> None:
    """Copy a folder, without and with waiting for the disk."""
    count = sum(path.stat().st_size for path in source.iterdir())
    for suffix, is_synced in ((CP, False), (CP_SYNCED, True)):
        with lab.scratch("cp") as folder:
            lab.settle()
            target = folder / "copy"
            seconds = _timed(["cp", "-r", str(source), str(target)])
            if is_synced:
                seconds += _timed(["sync", *map(str, target.iterdir())])
        lab.keep(
            Sample(case=f"{case}, {suffix}", round=round_number, byte_count=count, seconds=seconds)
        )


def _timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
    return time.perf_counter() - started
