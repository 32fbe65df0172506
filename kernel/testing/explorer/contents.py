"""What a claim's memory holds, compared with the history that it stands for."""

from collections.abc import Iterator, Sequence

from kernel.testing.explorer.forms import field
from kernel.testing.explorer.stage import Stage
from kernel.testing.invariants import Broken
from ownership import ClaimHandle, Content, NoSlot

__all__ = ["state_holds"]


def state_holds(
    stage: Stage, handle: ClaimHandle, tokens: Sequence[int], whose: str
) -> Iterator[Broken]:
    """A valid state holds the tokens below its position, in its slot and in its pages."""
    view = stage.core.ledger.view.describe(handle)
    if view.content is not Content.VALID:
        return
    memory, place = stage.device.memory, view.place
    pool = field(stage.core.ledger, "_book").pools[place]
    wanted = tuple(tokens[: view.position])
    slots, _ = memory.of(place)
    if not isinstance(view.slot, NoSlot):
        held = slots.get(pool.local_slot(view.slot))
        if held != wanted:
            yield Broken(
                "a state holds its own history",
                f"{place.value} slot {view.slot} of {whose} holds {held}, not {wanted}",
            )
    pages = pool.local_pages(view.pages)
    first = view.first_page
    if pages and memory.prefix(pages, view.position, place, first_page=first) != wanted:
        yield Broken(
            "a state holds its own history", f"pages {view.pages} of {whose} are not {wanted}"
        )
