"""What a benchmark measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MB = 1_000_000
GB = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One case measured once; what a program without a server process cannot tell is None."""

    case: str
    round: int
    byte_count: int
    seconds: float
    cpu_seconds: float | None = None
    background_cpu_seconds: float | None = None
    peak_bytes: int | None = None

    @property
    def mb_per_second(self) -> float:
        """Decimal megabytes, as `dd` prints them."""
        return self.byte_count / MB / self.seconds

    @property
    def cpu_seconds_per_gb(self) -> float:
        """Of the processes that answer requests; 0 where no server was."""
        return (self.cpu_seconds or 0) / self.byte_count * GB

    @property
    def peak_mib(self) -> float:
        """Most memory above idle, in MiB; 0 where no server was."""
        return (self.peak_bytes or 0) / 1024**2


def rates_of(samples: Sequence[Sample]) -> list[float]:
    """MB/s of each."""
    return [sample.mb_per_second for sample in samples]


def costs_of(samples: Sequence[Sample]) -> list[float]:
    """CPU seconds per GB of each."""
    return [sample.cpu_seconds_per_gb for sample in samples]
