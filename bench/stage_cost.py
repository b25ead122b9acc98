"""What timing and counting cost, in microseconds; needs neither a disk nor a network.

python -m bench.stage_cost
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

CALLS = 20_000
ROUNDS = 9

SHARED = "PROMETHEUS_MULTIPROC_DIR"


def main() -> int:
    """Print the medians; the counts go to files that several processes share, as in the server."""
    folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=folder) as shared:
        os.environ[SHARED] = shared
        for what, microseconds in measure().items():
            print(f"{microseconds:7.2f}  {what}")
    return 0


def measure() -> dict[str, float]:
    """Costs by what is measured."""
    from app.ingest import stages  # noqa: PLC0415 - prometheus-client looks for the folder once
    from app.metrics.instruments import Instruments  # noqa: PLC0415

    def enter() -> None:
        with stages.stage(stages.Stage.SYNC):
            pass

    def block() -> None:
        """What `FileCopy` does for a spliced block: fill the pipe, empty it."""
        for _ in range(2):
            enter()
        stages.note_arrival(1 << 20)

    costs = {"a stage, without a clock": cost(enter)}
    clock = stages.StageClock()
    token = stages.start(clock)
    costs["a stage, with a clock"] = cost(enter)
    costs["a block of a body: two stages and its bytes"] = cost(block)
    stages.stop(token)
    instruments = Instruments()
    costs["the counts of a request that reads"] = cost(lambda: count_request(instruments))
    spent = dict.fromkeys(stages.Stage, 0.01)
    costs["its stages besides, of one that writes"] = cost(lambda: instruments.count_stages(spent))
    return costs


def count_request(instruments: object) -> None:
    """What `app.web.metrics` does for each request."""
    from app.metrics.instruments import Instruments  # noqa: PLC0415

    assert isinstance(instruments, Instruments)
    running = instruments.requests_in_progress.labels("tus")
    running.inc()
    instruments.requests.labels("tus", "PATCH", "2xx").inc()
    running.dec()
    instruments.request_seconds.labels("tus").observe(0.01)


def cost(work: Callable[[], object]) -> float:
    """Median microseconds of CPU a call: others on the machine do not count."""
    rounds = timeit.repeat(work, timer=time.process_time, number=CALLS, repeat=ROUNDS)
    return statistics.median(rounds) / CALLS * 1e6


if __name__ == "__main__":
    sys.exit(main())
