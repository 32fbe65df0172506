"""How many slots and pages host memory gets, for states at rest and preempted turns.

Nothing is computed there, so there is no least that it must hold: none is fine, and states that
find no place are computed again from their logs. Slots and pages are in the proportion of the
device's own.
"""

import attrs

from kernel.errors import NotEnoughMemory, ValidationError
from kernel.memory.byte_sizes import format_bytes
from kernel.memory.device import DeviceMemory
from kernel.memory.plan import MemoryPlan

__all__ = ["HOST_UNASKED", "with_host"]

HOST_UNASKED = 0.125
"""Share of the host's free memory that nobody takes more of without having been told to."""


def with_host(
    plan: MemoryPlan, asked: int | None, memory: DeviceMemory | None, *, most: int
) -> MemoryPlan:
    """Add host memory to a plan of the device's pools.

    Args:
        plan: of the device.
        asked: bytes of host memory; ``None``: as many slots and pages as the device has, in at
            most an eighth of the free memory; none where nobody says how much is free.
        memory: what there is; ``None``: unknown, and what is asked for isn't limited.
        most: sequences that there may be at all; no more are given room.

    Raises:
        ValidationError: what was asked for doesn't hold one state.
        NotEnoughMemory: it is more than what is free.
    """
    free = None if memory is None else memory.host_free_bytes
    if free is not None and memory is not None and memory.is_host:
        free = max(0, free - plan.slots_bytes - plan.pages_bytes - plan.step_bytes)
    if asked is None:
        budget = 0 if free is None else int(free * HOST_UNASKED)
        slots, pages = _counts(plan, budget, plan.num_slots, plan.num_pages)
        return attrs.evolve(plan, host_slots=slots, host_pages=pages)
    if free is not None and asked > free:
        raise NotEnoughMemory(
            needed_bytes=asked,
            available_bytes=free,
            why=(
                f"host_memory_bytes is {format_bytes(asked)}, and {format_bytes(free)} of the"
                " host's memory can be had for it; lower it, or leave it out"
            ),
        )
    pages_each = -(-plan.max_model_len // plan.page_size)
    slots, pages = _counts(plan, asked, most, most * pages_each)
    if asked and not slots and not pages:
        least = plan.slot_bytes + plan.page_bytes
        why = f"the least for one state is {format_bytes(least)}; use 0 for none"
        raise ValidationError(parameter="host_memory_bytes", value=asked, why=why)
    return attrs.evolve(plan, host_slots=slots, host_pages=pages)


def _counts(plan: MemoryPlan, budget: int, most_slots: int, most_pages: int) -> tuple[int, int]:
    """Slots and pages within a budget; none at all where it doesn't hold one of each."""
    if not plan.num_slots:
        most_slots = 0
    if not plan.num_pages:
        most_pages = 0
    slot_bytes, page_bytes = plan.slot_bytes, plan.page_bytes
    least = (slot_bytes if most_slots else 0) + (page_bytes if most_pages else 0)
    if not least or budget < least:
        return 0, 0
    if not most_pages:
        return min(most_slots, budget // slot_bytes), 0
    if not most_slots:
        return 0, min(most_pages, budget // page_bytes)
    sequence = slot_bytes * plan.num_slots + page_bytes * plan.num_pages
    beside_a_page = (budget - page_bytes) // slot_bytes
    slots = min(most_slots, beside_a_page, max(1, budget * plan.num_slots // sequence))
    return slots, min(most_pages, (budget - slots * slot_bytes) // page_bytes)
