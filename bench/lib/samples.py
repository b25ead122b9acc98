"""What a benchmark measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

MB = 1_000_000
GB = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One case measured once; figures of a server are None where none ran."""

    case: str
    round: int
    byte_count: int
    seconds: float
    cpu_seconds: float | None = None
    background_cpu_seconds: float | None = None
    peak_bytes: int | None = None
    store_cpu_seconds: float | None = None
    """Of the object store, where there is one."""
    recovery_seconds: float | None = None
    """From the return of a line that was cut until bytes passed again."""
    line_bytes: int | None = None
    """Of the packets that passed an emulated line to the server, headers and all."""
    share: float | None = None
    """Of what passed while two senders shared a line: the part of the one that the case names."""
    connections: int | None = None
    """That a sender had open a while after its first bytes."""
    complete_seconds: float | None = None
    """From the last byte that was recorded until the file was complete."""
    store_written_bytes: int | None = None
    store_read_bytes: int | None = None
    """Of the object store's processes, to and from the disk."""
    requests: Mapping[str, int] | None = None
    """To the object store, by operation."""
    code_lines: int | None = None
    """Of what was measured."""

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


def spread(values: Sequence[float], digits: int = 0) -> str:
    """The median, with the extremes in brackets."""
    if not values:
        return "-"
    middle = f"{median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def paired_ratio(values: Sequence[float], others: Sequence[float]) -> float | None:
    """The median of `values` / `others`, pair by pair: both of a pair met the same noise."""
    pairs = [one / other for one, other in zip(values, others, strict=False) if other]
    return median(pairs) if pairs else None


def ratio(values: Sequence[float], others: Sequence[float]) -> str:
    """The paired ratio as a table has it."""
    found = paired_ratio(values, others)
    return "-" if found is None else f"{found:.2f}"
