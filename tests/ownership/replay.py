"""What the event stream alone says about who has what; shares no code with the ledger."""

from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]


class Replay:
    """Rebuilds slots, pages and runs, and checks that every event takes only what is there."""

    def __init__(self) -> None:
        self.seq = 0
        self.events: list[tuple[str, Fields]] = []
        self.device = (0, 0)
        self.free_slots: set[int] = set()
        self.free_pages: set[int] = set()
        self.slots: dict[int, int | None] = {}
        self.pages: dict[int, list[int]] = {}
        self.runs: dict[int, list[int]] = {}

    def record(self, event: str, fields: Fields, /) -> None:
        assert fields["seq"] == self.seq
        self.seq += 1
        self.events.append((event, fields))
        name = event.partition(".")[2]
        handler = getattr(self, f"on_{name}", None)
        if handler is not None:
            handler(fields)

    def on_opened(self, fields: Fields) -> None:
        self.device = (fields["slots"], fields["pages"])
        self.free_slots = set(range(fields["slots"] + fields["host_slots"]))
        self.free_pages = set(range(fields["pages"] + fields["host_pages"]))

    def on_reserved(self, fields: Fields) -> None:
        claim, slot = fields["claim"], fields["slot"]
        self.slots[claim] = slot
        self.pages[claim] = []
        slots, pages = self.device
        is_on_device = fields["place"] == "device"
        if slot is not None:
            self.free_slots.remove(slot)
            assert (slot < slots) == is_on_device
        assert all((page < pages) == is_on_device for page in fields["pages"])
        if fields["place"] == "file":
            assert slot is None
            assert not fields["pages"]
        self.on_grown(fields)

    def on_grown(self, fields: Fields) -> None:
        for page in fields["pages"]:
            self.free_pages.remove(page)
            self.pages[fields["claim"]].append(page)

    def on_landed(self, fields: Fields) -> None:
        for row in fields["rows"]:
            pages = self.pages[row["claim"]]
            for run in [*row.get("earlier", ()), row]:
                frozen = run["frozen"]
                assert pages[: len(frozen)] == frozen
                del pages[: len(frozen)]
                if frozen:
                    self.runs[run["run"]] = frozen

    def on_committed(self, fields: Fields) -> None:
        pages = self.pages[fields["claim"]]
        for page in reversed(fields["returned_pages"]):
            assert pages.pop() == page
            self.free_pages.add(page)

    on_admitted = on_committed

    def on_rolled_back(self, fields: Fields) -> None:
        claim = fields["claim"]
        expected = self.pages.pop(claim)
        for run in fields["dropped_runs"]:
            expected += self.runs.pop(run)
        returned = fields["returned_pages"]
        assert sorted(returned) == sorted(expected)
        assert not self.free_pages.intersection(returned)
        self.free_pages.update(returned)
        slot = self.slots.pop(claim)
        assert fields["returned_slot"] == slot
        if slot is not None:
            assert slot not in self.free_slots
            self.free_slots.add(slot)

    on_closed = on_rolled_back
    on_evicted = on_rolled_back
    on_reclaimed = on_rolled_back
    on_drain_ended = on_rolled_back
