"""``tenure bench``: the figures of docs/performance.md, measured here and now."""

from adapters.cli.bench.command import bench

__all__ = ["bench"]
