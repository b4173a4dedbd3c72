"""No tracking beside ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping

from sage.loggers.base import RunInfo


class NoLogger:
    """A tracker that keeps nothing: every run writes ``metrics.jsonl`` anyway."""

    def start(self, info: RunInfo) -> str | None:
        """Nothing to begin."""
        return None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Drop the scalars."""

    def log_curve(self, step: int, name: str, curve: Mapping[int, float]) -> None:
        """Drop the curve."""

    def close(self, *, failed: bool = False) -> None:
        """Nothing to end."""
