"""A run on one page: seed, strategy, backend, and every decision. A small JSON file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from kernel.testing.simulation.strategies import StrategyName

__all__ = ["Backend", "Failure", "Tape"]

Backend = Literal["asyncio", "trio"]
_FORMAT = 1


@attrs.frozen
class Failure:
    """What was wrong with a run; two runs of one ``kind`` count as the same fault."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@attrs.frozen(kw_only=True)
class Tape:
    """Everything that a run is a function of.

    ``scenario`` names the function that was run, for whoever replays it.
    """

    seed: int
    strategy: StrategyName
    backend: Backend = "asyncio"
    scenario: str = "kernel"
    tracks: Mapping[str, Sequence[int]] = attrs.field(factory=dict[str, "Sequence[int]"])
    failure: Failure | None = None

    @property
    def size(self) -> int:
        """How many decisions are on it."""
        return sum(map(len, self.tracks.values()))

    def save(self, path: Path) -> None:
        """Write it as JSON, one line a track."""
        facts = attrs.asdict(self)
        tracks = facts.pop("tracks")
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
        rows = ",\n".join(f"    {json.dumps(name)}: {list(row)}" for name, row in tracks.items())
        lines = [f'  "format": {_FORMAT}', *lines, f'  "tracks": {{\n{rows}\n  }}']
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Tape":
        """Read a file that :meth:`save` wrote.

        Raises:
            ValueError: it is no tape, or one of another format.
        """
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if facts.pop("format", None) != _FORMAT:
            raise ValueError(f"{path} is no tape of format {_FORMAT}")
        failure = facts.pop("failure")
        return cls(**facts, failure=Failure(**failure) if failure else None)
