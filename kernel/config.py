"""What an engine is opened with, and the numbers that follow once the model is known."""

import os
from collections.abc import Mapping
from typing import Any, Literal, Self, cast, get_args

import attrs

from kernel import checks
from kernel.errors import ValidationError
from kernel.memory.byte_sizes import parse_bytes
from kernel.memory.device import DeviceMemory
from kernel.memory.host import with_host
from kernel.memory.plan import USUAL_CONTEXT, MemoryPlan, PoolRequest, plan_memory
from kernel.session_store import SyncPolicy
from kernel.step import ModelSpec

__all__ = [
    "EngineConfig",
    "OnLimit",
    "ResolvedLimits",
    "SchedulingPolicy",
    "StateDtype",
    "plan_pools",
    "resolve",
]

SchedulingPolicy = Literal["fcfs", "priority", "fair", "deadline"]
OnLimit = Literal["refuse", "slide"]
StateDtype = Literal["auto", "float32", "float64", "bfloat16", "float16"]


def _own_copy(value: Mapping[str, float]) -> Mapping[str, float]:
    return dict(value)


def _bytes(value: object) -> int | None:
    return None if value is None else parse_bytes("memory_bytes", value)


def _host_bytes(value: object) -> int | None:
    return None if value is None else parse_bytes("host_memory_bytes", value, least=0)


def _checkpoint_bytes(value: object) -> int | None:
    return None if value is None else parse_bytes("max_checkpoint_bytes", value)


def _cache_bytes(value: object) -> int | None:
    return None if value is None else parse_bytes("prefix_cache_bytes", value)


def _store_bytes(value: object) -> int | None:
    return None if value is None else parse_bytes("session_store_bytes", value)


def _path(value: "str | os.PathLike[str] | None") -> str | None:
    return value if value is None or isinstance(value, str) else checks.path("session_store", value)


@attrs.frozen(kw_only=True)
class EngineConfig:
    """How an engine is opened; every field has a sensible default and is checked at once.

    Raises:
        ValidationError: a value is out of range or contradicts another.
    """

    model: str = "bundled"
    """A name that a device knows (``"bundled"``, ``"fake"``), a model directory, or a GGUF file."""
    device: str = "cpu"
    """``"cpu"``, ``"cuda"``, ``"fake"``, or what another distribution has installed."""
    dtype: str = "auto"
    """Of weights, products and the key/value cache: ``"auto"`` (float32 on a CPU, elsewhere as
    config.json says), ``"float32"``, ``"bfloat16"``, ``"float16"`` or ``"float64"``."""
    state_dtype: StateDtype = "auto"
    """Of the recurrent state: ``"auto"`` is float32, or float64 for a float64 model."""
    max_num_seqs: int = 64
    """Most rows in a step, that is, turns that run at once."""
    num_slots: int | None = None
    """Recurrent states on the device; ``None``: as the memory plan says; 1 is enough."""
    num_pages: int | None = None
    """Key/value pages; ``None``: as the memory plan says."""
    memory_bytes: int | None = attrs.field(default=None, converter=_bytes)
    """Memory of the device that the engine may take, weights and temporaries included: a number,
    or a text like ``"8GiB"``. Slots and pages fill it, up to ``max_sessions``. ``None``: they are
    for twice ``max_num_seqs`` sequences of 2,048 tokens, or as many as an eighth of the
    free memory holds (on an accelerator: 80 %)."""
    memory_fraction: float | None = None
    """In place of ``memory_bytes``: share of the memory that is free once the weights are there."""
    host_memory_bytes: int | None = attrs.field(default=None, converter=_host_bytes)
    """Host memory for states at rest and preempted turns that the device has no room for: a
    number, or a text like ``"16GiB"``; 0: none. ``None``: as much as slots and pages of the device
    take, but at most an eighth of the host's free memory; none if the device can't say what is
    free."""
    page_size: int = 16
    """Token positions of a page."""
    max_num_batched_tokens: int = 512
    """Most tokens in a step; at least ``max_num_seqs``, so that every decode row finds room."""
    max_model_len: int | None = None
    """Most tokens of one sequence; ``None``: what the model allows."""
    max_sessions: int = 10_000
    """Most sessions in memory, forks included. A new one beyond that is refused with
    ``TooManySessions``; a dormant one, which only the store has, waits until it can be one of
    them."""
    max_checkpoint_bytes: int | None = attrs.field(default=1 << 30, converter=_checkpoint_bytes)
    """Memory that the states behind one session's named checkpoints may take beside its own; over
    it the oldest of them are given up: such a checkpoint is computed again from the token log.
    A number, or a text like ``"1GiB"``; ``None``: as much as is free."""
    max_num_queued_reqs: int = 1024
    """Most requests that wait for admission; one more is refused with ``QueueFull``."""
    max_num_queued_tokens: int = 1_000_000
    """Most tokens that those that wait will absorb; one that waits alone may have more."""
    scheduling_policy: SchedulingPolicy = "fcfs"
    """What a turn's rank is made of: its arrival, its ``priority``, its ``tenant``'s share
    (``"fair"``), or its ``timeout_s`` (``"deadline"``)."""
    priority_weight_s: float = 10.0
    """Policy ``"priority"``: seconds of waiting that one level of priority is worth."""
    tenant_weights: Mapping[str, float] = attrs.field(
        factory=dict[str, float], converter=_own_copy, hash=False
    )
    """Policy ``"fair"``: shares by tenant; a tenant that isn't named has weight 1."""
    seed: int = 0
    """Draws of requests without a seed of their own are a function of this and the request's id."""
    on_limit: OnLimit = "refuse"
    """What becomes of a session at the limit of the model or of the pools: a turn that would not
    fit is refused, or the session slides: attention layers lose their oldest positions, half a
    window at a time, recurrent state stays. A session's own value goes first."""
    idle_timeout_s: float | None = None
    """A session unused for so long is closed; ``None``: never. A session's own value goes first."""
    enable_prefix_caching: bool = False
    """Keep states at the beginnings of prompts for other requests that begin alike. Off, a prompt
    is cut into chunks by the step's budget alone."""
    prefix_cache_block: int = 512
    """Positions between two states that the prefix cache keeps of one long prompt."""
    prefix_cache_bytes: int | None = attrs.field(default=None, converter=_cache_bytes)
    """Device memory that cached states may take: a number, or a text like ``"2GiB"``; ``None``:
    half of slots and pages. Turns and sessions that need the room take it."""
    step_timeout_s: float = 60.0
    """A step that takes longer counts as the death of the device's worker."""
    stop_timeout_s: float = 10.0
    """How long closing waits for the step that runs."""
    session_store: str | None = attrs.field(default=None, converter=_path)
    """A directory in which every turn of every session is kept before its caller is told that it
    has ended; an engine that is opened on it later goes on with all of them. ``None``: sessions
    end with the engine."""
    session_store_sync: SyncPolicy = "full"
    """When a turn counts as kept: ``"full"``: it survives the loss of power. ``"normal"``: the end
    of the process. ``"off"``: the last turns may be lost, never in part."""
    session_store_bytes: int | None = attrs.field(default=None, converter=_store_bytes)
    """Most bytes of snapshots in the store, as a number or a text like ``"20GiB"``; the least
    recently used go first. Logs aren't counted, and never go. ``None``: no bound."""
    session_store_timeout_s: float = 60.0
    """A read or a write of the store that takes longer has failed, and its turn with it."""
    max_resident_sessions: int = 1024
    """With a store: sessions in memory beyond which those that rest longest are left to the store,
    which costs a session no task, no slot and no memory but an index entry; its next turn brings
    it back."""
    max_restarts: int = 3
    """Deaths of scheduler, GPU pool and store within ``restart_window_s`` that are survived."""
    restart_window_s: float = 60.0
    """Seconds in which more deaths than ``max_restarts`` end the engine."""
    log_events: bool = False
    """Write one structlog event for each change of owner, launch, landing and turn, to the
    application's own structlog; a logger that is passed to ``Engine.open`` gets them anyway."""

    def __attrs_post_init__(self) -> None:
        for name in ("model", "device", "dtype"):
            checks.text(name, getattr(self, name))
        self._check_counts()
        self._check_durations()
        self._check_store()
        checks.truth("log_events", self.log_events)
        checks.truth("enable_prefix_caching", self.enable_prefix_caching)
        if self.on_limit not in get_args(OnLimit):
            known = ", ".join(get_args(OnLimit))
            raise ValidationError(parameter="on_limit", value=self.on_limit, why=f"use {known}")
        if self.scheduling_policy not in get_args(SchedulingPolicy):
            known = ", ".join(get_args(SchedulingPolicy))
            raise ValidationError(
                parameter="scheduling_policy", value=self.scheduling_policy, why=f"use {known}"
            )
        for tenant, weight in self.tenant_weights.items():
            checks.number(f"tenant_weights[{tenant!r}]", weight, above=0)

    def _check_counts(self) -> None:
        for name in (
            "max_num_seqs",
            "page_size",
            "max_num_batched_tokens",
            "max_sessions",
            "max_num_queued_reqs",
            "max_num_queued_tokens",
            "prefix_cache_block",
            "max_resident_sessions",
        ):
            checks.integer(name, getattr(self, name), least=1)
        for name in ("seed", "max_restarts"):
            checks.integer(name, getattr(self, name), least=0)
        for name in ("num_slots", "num_pages"):
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name), least=0)
        if self.max_model_len is not None:
            checks.integer("max_model_len", self.max_model_len, least=2)
        self._check_memory()
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValidationError(
                parameter="max_num_batched_tokens",
                value=self.max_num_batched_tokens,
                why=f"it is less than max_num_seqs={self.max_num_seqs}; a step has a token a row",
            )

    def _check_memory(self) -> None:
        if self.state_dtype not in get_args(StateDtype):
            known = ", ".join(get_args(StateDtype))
            raise ValidationError(
                parameter="state_dtype", value=self.state_dtype, why=f"use {known}"
            )
        fraction = self.memory_fraction
        if fraction is None:
            return
        checks.number("memory_fraction", fraction, above=0)
        if fraction > 1:
            raise ValidationError(
                parameter="memory_fraction", value=fraction, why="it is a share, at most 1"
            )
        if self.memory_bytes is not None:
            raise ValidationError(
                parameter="memory_fraction", value=fraction, why="memory_bytes is given as well"
            )

    def _check_durations(self) -> None:
        checks.seconds("idle_timeout_s", self.idle_timeout_s)
        for name in (
            "step_timeout_s",
            "stop_timeout_s",
            "restart_window_s",
            "session_store_timeout_s",
        ):
            checks.number(name, getattr(self, name), above=0)
        checks.number("priority_weight_s", self.priority_weight_s)

    def _check_store(self) -> None:
        if self.session_store is not None:
            checks.instance("session_store", self.session_store, str)
            if not self.session_store:
                raise ValidationError(
                    parameter="session_store", value="", why="name a directory, or pass None"
                )
        if self.session_store_sync not in get_args(SyncPolicy):
            known = ", ".join(get_args(SyncPolicy))
            raise ValidationError(
                parameter="session_store_sync", value=self.session_store_sync, why=f"use {known}"
            )

    @classmethod
    def from_dict(cls, given: Mapping[str, object]) -> Self:
        """Build from names and values, as read from JSON or a command line.

        Raises:
            ValidationError: an unknown name (the message tells the near ones) or a bad value.
        """
        checks.known_names(given, attrs.fields_dict(cls), of="EngineConfig")
        return cls(**cast("dict[str, Any]", dict(given)))


@attrs.frozen(kw_only=True)
class ResolvedLimits:
    """The numbers of an open engine; all of them known, none ``None``."""

    num_slots: int
    """0: the model keeps no recurrent state."""
    num_pages: int
    """0: the model has no attention layers."""
    page_size: int
    max_model_len: int
    max_rows: int
    max_step_tokens: int
    host_slots: int = 0
    host_pages: int = 0


def plan_pools(
    config: EngineConfig, model: ModelSpec, memory: DeviceMemory | None = None
) -> MemoryPlan:
    """Size slots and pages for a model, on the device and in host memory.

    Raises:
        ValidationError: ``max_model_len`` beyond the model's, no slot or page for a model that
            needs them, or some for a model that has no use for them; less host memory than one
            state takes.
        NotEnoughMemory: one turn doesn't fit into the memory, or what was asked for doesn't.
    """
    length = model.max_model_len if config.max_model_len is None else config.max_model_len
    if length > model.max_model_len:
        raise ValidationError(
            parameter="max_model_len",
            value=length,
            why=f"{model.name} holds at most {model.max_model_len} tokens",
        )
    asked = PoolRequest(
        model=model,
        num_slots=config.num_slots,
        num_pages=config.num_pages,
        page_size=config.page_size,
        max_model_len=length,
        turn_must_fit=min(length, USUAL_CONTEXT) if config.max_model_len is None else length,
        max_num_seqs=config.max_num_seqs,
        max_sessions=config.max_sessions,
        memory_bytes=config.memory_bytes,
        memory_fraction=config.memory_fraction,
    )
    return with_host(
        plan_memory(asked, memory),
        config.host_memory_bytes,
        memory,
        most=config.max_num_seqs + config.max_sessions,
    )


def resolve(
    config: EngineConfig, model: ModelSpec, memory: DeviceMemory | None = None
) -> ResolvedLimits:
    """The numbers that depend on the model and on the memory; errors as :func:`plan_pools`."""
    plan = plan_pools(config, model, memory)
    return ResolvedLimits(
        num_slots=plan.num_slots,
        num_pages=plan.num_pages,
        page_size=config.page_size,
        max_model_len=plan.max_model_len,
        max_rows=config.max_num_seqs,
        max_step_tokens=config.max_num_batched_tokens,
        host_slots=plan.host_slots,
        host_pages=plan.host_pages,
    )
