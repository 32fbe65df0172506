"""Claims that a test took and did not give back, and the lines at which it took them."""

import inspect
import linecache
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import attrs

from ownership import Observer

__all__ = ["Held", "Site", "Witness", "report", "site_outside"]

LEDGER = frozenset({"ownership"})
NOT_THE_USERS = LEDGER | {"kernel", "adapters", "anyio", "contextlib", "asyncio", "trio", "outcome"}
"""Top-level modules whose lines nobody would look for a leak of his own in."""

_LOOPS = frozenset({("asyncio.events", "_run"), ("trio._core._run", "unrolled_run")})
_RUNNERS = frozenset({"_pytest", "pluggy"})
"""Where a loop gives a task its turn, and who runs the tests: beyond, nobody asks for anything."""

_INSTALLED_IN = str(Path(__file__).parent.parent.parent)
_OWNERS = {
    "batch": "is a working claim",
    "session": "is a session's state",
    "cache": "is a state of the prefix cache",
}


@attrs.frozen
class Site:
    """A line of code that was running."""

    file: str
    line: int
    function: str

    @classmethod
    def of(cls, frame: FrameType) -> "Site":
        return cls(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)

    def tell(self, root: str) -> str:
        """Name it as compilers do, from the given folder."""
        around = [each for each in (root, _INSTALLED_IN) if self.file.startswith(each + os.sep)]
        file = os.path.relpath(self.file, max(around, key=len)) if around else self.file
        return f"{file}:{self.line} in {self.function}"


def site_outside(packages: Collection[str]) -> Site | None:
    """The innermost line that runs now outside of these packages and of this one.

    None where a task runs none: a library has started it, as ``Engine.map`` does.
    """
    frame = inspect.currentframe()  # inspect.stack() would read every file on the way
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        top = name.partition(".")[0]
        if top in _RUNNERS or (name, frame.f_code.co_name) in _LOOPS:
            return None
        if not name.startswith("kernel.testing.") and top not in packages:
            return Site.of(frame)
        frame = frame.f_back
    return None


@attrs.define(eq=False)
class Held:
    """A claim that somebody holds."""

    claim: int
    slot: int | None
    pages: int
    """Taken for this claim alone, so far."""
    turn: str
    owner: str
    holder: str
    """Who was last told to have it; handles move on without an event."""
    reserved_at: Site | None
    """Who called ``reserve``: the kernel, or a user of the bare ledger."""
    asked_at: Site | None
    """Where the user's code submitted the turn, or called ``reserve`` itself, if it did."""
    lease: int | None = None

    def tell(self, root: str) -> list[str]:
        """Say what it is and where it comes from."""
        what = [] if self.slot is None else [f"slot {self.slot}"]
        what += [f"{self.pages} page{'s' * (self.pages != 1)}"] if self.pages else []
        whose = f"{_OWNERS.get(self.owner, self.owner)}, with {self.holder}"
        if self.lease is not None:
            whose = f"is on the device, in lease {self.lease}"
        lines = [f"  claim {self.claim} ({', '.join(what) or 'nothing'}) {whose}"]
        turn = f" for turn {self.turn}" if self.turn else ""
        if self.asked_at is not None:
            lines.append(f"    taken{turn} at {self.asked_at.tell(root)}")
            lines.append(
                f"      {linecache.getline(self.asked_at.file, self.asked_at.line).strip()}"
            )
        elif turn:
            lines.append(f"    taken{turn} in a task in which no line of yours runs")
        if self.reserved_at not in {None, self.asked_at}:
            assert self.reserved_at is not None
            lines.append(f"    reserved at {self.reserved_at.tell(root)}")
        return lines


def report(held: Sequence[Held], root: str) -> str:
    """Say what is held and where it was taken; empty when nothing is.

    Args:
        root: the folder that file names are told from.
    """
    if not held:
        return ""
    were = "1 claim was" if len(held) == 1 else f"{len(held)} claims were"
    lines = [line for each in held for line in each.tell(root)]
    return "\n".join([f"{were} not given back:", *lines])


@attrs.define(eq=False)
class Witness:
    """An observer of one ledger that stands before its owner's own, if there is one."""

    passes_to: Observer | None = None
    submits: dict[str, Site | None] = attrs.field(factory=dict[str, "Site | None"])
    """Where each turn was submitted; None where no line of the user's was running."""
    _held: dict[object, Held] = attrs.field(factory=dict[object, Held])
    _quarantined: set[object] = attrs.field(factory=set[object])
    _opening: Mapping[str, object] | None = None

    def record(self, event: str, fields: Mapping[str, Any], /) -> None:
        """Follow one change of owner, and hand it on."""
        self._opening = fields if event == "ledger.opened" else None
        self._follow(event, fields)
        if self.passes_to is not None:
            self.passes_to.record(event, fields)

    def pass_to(self, observer: Observer | None) -> None:
        """The ledger's owner asks for this observer: the log begins for it as it always does."""
        self.passes_to = observer
        if observer is not None and self._opening is not None:
            observer.record("ledger.opened", self._opening)

    def held(self) -> list[Held]:
        """What is held now, but for what a device has that never answered."""
        return [each for each in self._held.values() if each.lease not in self._quarantined]

    def _follow(self, event: str, fields: Mapping[str, Any]) -> None:
        match event:
            case "claim.reserved":
                self._held[fields["claim"]] = self._taken(fields)
            case "claim.grown":
                self._held[fields["claim"]].pages += len(fields["pages"])
            case "claim.committed" | "claim.admitted":
                claim = self._held[fields["claim"]]
                claim.owner, claim.holder = fields["owner"], fields["to"]
            case "lease.launched":
                for number in fields["claims"]:
                    self._held[number].lease = fields["lease"]
            case "lease.quarantined":
                self._quarantined.add(fields["lease"])
            case "lease.landed":
                self._quarantined.discard(fields["lease"])
                for row in fields["rows"]:
                    self._held[row["claim"]].lease = None
            case (
                "claim.rolled_back"
                | "claim.closed"
                | "claim.evicted"
                | "claim.reclaimed"
                | "claim.drained"  # nobody's: it comes back when the last copy out of it has ended
            ):
                del self._held[fields["claim"]]
            case _:
                pass

    def _taken(self, fields: Mapping[str, Any]) -> Held:
        turn, submits = fields["turn"], self.submits
        return Held(
            claim=fields["claim"],
            slot=fields["slot"],
            pages=len(fields["pages"]),
            turn=turn,
            owner=fields["owner"],
            holder=fields["to"],
            reserved_at=site_outside(LEDGER),
            asked_at=submits[turn] if turn in submits else site_outside(NOT_THE_USERS),
        )
