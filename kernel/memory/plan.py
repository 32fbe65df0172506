"""How many slots and pages an engine gets, and what they take: worked out before any is allocated.

A *sequence* is a turn that runs, or a session at rest: each has a slot and the pages of its
tokens. Without a word on memory, the pools hold each turn that can run and the state that it
started from, for sequences of the length that is usual; or fewer, where the device has less. With
a share or a number of bytes, they fill it, up to every session that may be open.
"""

import attrs

from kernel.errors import NotEnoughMemory, ValidationError
from kernel.memory.byte_sizes import format_bytes
from kernel.memory.device import MOST_UNASKED, DeviceMemory
from kernel.step import ModelSpec

__all__ = ["USUAL_CONTEXT", "MemoryPlan", "PoolRequest", "plan_memory"]

USUAL_CONTEXT = 2048
"""Tokens of a sequence that the pools are sized for, if the model can hold so many."""


@attrs.frozen(kw_only=True)
class PoolRequest:
    """What a configuration asks of the pools of one model."""

    model: ModelSpec
    num_slots: int | None
    num_pages: int | None
    page_size: int
    max_model_len: int
    turn_must_fit: int
    """Tokens of the turn that the pools must have room for."""
    max_num_seqs: int
    max_sessions: int
    memory_bytes: int | None
    """Most that the engine may take, weights and temporaries included."""
    memory_fraction: float | None
    """Most that pools and temporaries may take, as a share of what is free."""


@attrs.frozen(kw_only=True)
class MemoryPlan:
    """The pools of an engine and the memory that all of it takes; ``tenure plan`` prints this."""

    model: str
    num_slots: int
    """0: the model keeps no recurrent state."""
    slot_bytes: int
    num_pages: int
    """0: the model has no attention layers."""
    page_size: int
    page_bytes: int
    max_model_len: int
    weights_bytes: int
    step_bytes: int
    budget_bytes: int | None
    """For slots and pages; ``None``: nobody said how much there is."""
    host_slots: int = 0
    """In host memory, for states at rest and preempted turns."""
    host_pages: int = 0

    @property
    def host_bytes(self) -> int:
        """What host memory takes once all of it was used."""
        return self.host_slots * self.slot_bytes + self.host_pages * self.page_bytes

    @property
    def slots_bytes(self) -> int:
        """What the slots take, with the one more that pads index tables."""
        return (self.num_slots + 1) * self.slot_bytes if self.num_slots else 0

    @property
    def pages_bytes(self) -> int:
        """What the pages take, with the one more that pads page tables."""
        return (self.num_pages + 1) * self.page_bytes if self.num_pages else 0

    @property
    def total_bytes(self) -> int:
        """Weights, slots, pages and the temporaries of the largest step."""
        return self.weights_bytes + self.step_bytes + self.slots_bytes + self.pages_bytes

    @property
    def largest_turn(self) -> int:
        """Most tokens, history included, that one sequence can ever hold."""
        if not self.num_pages:
            return self.max_model_len
        return min(self.max_model_len, self.num_pages * self.page_size)

    @property
    def usual_sequences(self) -> int:
        """Turns and sessions of :data:`USUAL_CONTEXT` tokens that are on the device at once."""
        return self._sequences(self.num_slots, self.num_pages)

    @property
    def host_sequences(self) -> int:
        """States of :data:`USUAL_CONTEXT` tokens that host memory holds beside those."""
        return self._sequences(self.host_slots, self.host_pages)

    def _sequences(self, slots: int, pages: int) -> int:
        counts: list[int] = [slots] if self.num_slots else []
        if self.num_pages:
            usual = min(self.max_model_len, USUAL_CONTEXT)
            counts.append(pages // -(-usual // self.page_size))
        return min(counts, default=0)


def plan_memory(request: PoolRequest, memory: DeviceMemory | None) -> MemoryPlan:
    """Size the pools; counts that were given go first, the others share what is left.

    Args:
        request: what is asked.
        memory: what there is; ``None``: unknown, and not limited.

    Raises:
        ValidationError: a count is 0 for a model that needs some, or not for one without use.
        NotEnoughMemory: one turn doesn't fit, or what was asked for doesn't; with the numbers.
    """
    model, page_size = request.model, request.page_size
    for name, given, used in (
        ("num_slots", request.num_slots, model.uses_slots),
        ("num_pages", request.num_pages, model.uses_pages),
    ):
        _check_given(name, given, used, model)
    budget = _budget(request, memory)
    slots = request.num_slots if model.uses_slots else 0
    pages = request.num_pages if model.uses_pages else 0
    if slots is None or pages is None:
        slots, pages = _share(request, slots, pages, budget, knows=memory is not None)
    plan = MemoryPlan(
        model=model.name,
        num_slots=slots,
        slot_bytes=model.slot_bytes,
        num_pages=pages,
        page_size=page_size,
        page_bytes=page_size * model.page_token_bytes,
        max_model_len=request.max_model_len,
        weights_bytes=0 if memory is None else memory.weights_bytes,
        step_bytes=0 if memory is None else memory.step_bytes,
        budget_bytes=budget,
    )
    _check_whole(plan, request, memory)
    return plan


def _check_given(name: str, given: int | None, used: bool, model: ModelSpec) -> None:
    if given is None:
        return
    if used and not given:
        raise ValidationError(parameter=name, value=0, why=f"{model.name} needs at least 1")
    if given and not used:
        raise ValidationError(
            parameter=name, value=given, why=f"{model.name} has no use for any; leave it out"
        )


def _budget(request: PoolRequest, memory: DeviceMemory | None) -> int | None:
    """Bytes for slots and pages; may be negative."""
    step = 0 if memory is None else memory.step_bytes
    if request.memory_bytes is not None:
        weights = 0 if memory is None else memory.weights_bytes
        return request.memory_bytes - weights - step
    if memory is None or memory.free_bytes is None:
        if request.memory_fraction is not None:
            raise ValidationError(
                parameter="memory_fraction",
                value=request.memory_fraction,
                why="this device doesn't say how much memory is free; use memory_bytes",
            )
        return None
    if request.memory_fraction is not None:
        return int(memory.free_bytes * request.memory_fraction) - step
    unasked = int(memory.free_bytes * memory.unasked_share) - step
    most = int(memory.free_bytes * MOST_UNASKED) - step
    return max(unasked, min(most, _least(request)))


def _least(request: PoolRequest) -> int:
    """Bytes of the smallest pools that hold one turn, with the counts that were given."""
    model, pages = request.model, request.num_pages or _pages_of_turn(request)
    slots = (request.num_slots or 1) + 1
    return _bytes(model, slots, request.page_size * model.page_token_bytes, pages + 1)


def _share(
    request: PoolRequest, slots: int | None, pages: int | None, budget: int | None, *, knows: bool
) -> tuple[int, int]:
    """Both counts, where at least one wasn't given: as many sequences as are wanted, or fit."""
    model, page_bytes = request.model, request.page_size * request.model.page_token_bytes
    usual = -(-min(request.max_model_len, USUAL_CONTEXT) // request.page_size)
    wanted = _wanted(request, knows)
    must = _pages_of_turn(request)
    if budget is None:
        enough = max(wanted * usual, must)
        return wanted if slots is None else slots, enough if pages is None else pages
    left = budget - _bytes(model, (slots or 0) + 1, page_bytes, (pages or 0) + 1)
    unit = (model.slot_bytes if slots is None else 0) + (usual * page_bytes if pages is None else 0)
    count = min(wanted, left // unit) if unit else wanted
    if pages is not None:
        return max(count, 0), pages
    each_slot = model.slot_bytes if slots is None else 0
    if count * usual < must:
        # The one long turn goes before the number of short ones.
        count = min(wanted, (left - must * page_bytes) // each_slot) if each_slot else count
        return (max(count, 0) if slots is None else slots), must
    total = count * usual
    if _fills(request) and page_bytes:
        longest = count * -(-request.max_model_len // request.page_size)
        total = max(total, min(longest, (left - count * each_slot) // page_bytes))
    return (count if slots is None else slots), total


def _fills(request: PoolRequest) -> bool:
    return request.memory_bytes is not None or request.memory_fraction is not None


def _wanted(request: PoolRequest, knows: bool) -> int:
    """Sequences on the device at once, if there is room."""
    running, most = request.max_num_seqs, request.max_num_seqs + request.max_sessions
    if _fills(request):
        return most
    return min(2 * running, most) if knows else running


def _bytes(model: ModelSpec, slots: int, page_bytes: int, pages: int) -> int:
    return slots * model.slot_bytes + pages * page_bytes


def _check_whole(plan: MemoryPlan, request: PoolRequest, memory: DeviceMemory | None) -> None:
    """Refuse a plan that can't hold one turn, or that is larger than what there is."""
    model, room = request.model, plan.budget_bytes
    both_given = not (
        (model.uses_slots and request.num_slots is None)
        or (model.uses_pages and request.num_pages is None)
    )
    if both_given and not _fills(request):
        # Given by somebody who knows; all that is free may be taken for them.
        free = None if memory is None else memory.free_bytes
        room = None if free is None else free - plan.step_bytes
    has_slot = plan.num_slots > 0 or not model.uses_slots
    if room is None or (has_slot and plan.slots_bytes + plan.pages_bytes <= room):
        return
    least = attrs.evolve(
        plan,
        num_slots=(request.num_slots or 1) if model.uses_slots else 0,
        num_pages=(request.num_pages or _pages_of_turn(request)) if model.uses_pages else 0,
    )
    raise NotEnoughMemory(
        needed_bytes=least.slots_bytes + least.pages_bytes,
        available_bytes=max(room, 0),
        why=_refusal(least, request, max(room, 0), both_given),
    )


def _pages_of_turn(request: PoolRequest) -> int:
    return -(-request.turn_must_fit // request.page_size)


def _refusal(least: MemoryPlan, request: PoolRequest, room: int, both_given: bool) -> str:
    parts: list[str] = []
    if least.num_slots:
        count = "a slot" if least.num_slots == 1 else f"{least.num_slots} slots"
        parts.append(f"{count} of {format_bytes(least.slot_bytes)}")
    if least.num_pages:
        parts.append(f"{least.num_pages} pages of {format_bytes(least.page_bytes)}")
    taken = format_bytes(least.slots_bytes + least.pages_bytes)
    counts = {"num_slots": request.num_slots, "num_pages": request.num_pages}
    given = [name for name, count in counts.items() if count]
    if both_given:
        what = f"take {taken}; lower num_slots or num_pages, or leave them out"
    elif given:
        what = f"take {taken}; lower {given[0]} or leave it out, or raise memory_bytes"
    else:
        what = (
            f"are the least for a turn of {request.turn_must_fit} tokens and take {taken}; raise"
            " memory_bytes, or lower max_model_len or max_num_batched_tokens"
        )
    return (
        f"{format_bytes(room)} are left for slots and pages beside weights of"
        f" {format_bytes(least.weights_bytes)} and temporaries of {format_bytes(least.step_bytes)};"
        f" {' and '.join(parts)} (one more of each for padding) {what}"
    )
