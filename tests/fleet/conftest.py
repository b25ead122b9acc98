"""How long each attack runs, as in tests/hostile."""

from tests.hostile.conftest import scaled

__all__ = ["scaled"]
