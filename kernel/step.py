"""What the kernel asks of a device: one forward pass over the rows of many turns.

A :class:`Device` owns the arenas (recurrent state by slot, key/value cache by page) and outlives
every worker. A :class:`DeviceWorker` runs steps one after another, off the event loop, and reports
each exactly once. The kernel never sees a tensor; the device never sees a handle. The integers in
a :class:`StepRow` are lent for the length of one step: the lease that covers them stands in the
ledger until the step's completion has been handled.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

import attrs

from kernel.chat import ChatFormat
from kernel.loading import OnProgress
from kernel.memory.device import AskMemory
from kernel.params import SamplingParams
from kernel.requests.constraining import ConstraintCompiler
from kernel.requests.logit_rules import LogitRules
from kernel.requests.row_outcomes import PromptScoring, RowFault, RowOutcome, RowScores
from kernel.state_image import StateImage
from ownership import NoSlot, PageIndex, Place, SlotIndex

__all__ = [
    "CopyOf",
    "CopyOut",
    "Device",
    "DeviceFactory",
    "DeviceLimits",
    "DeviceStep",
    "DeviceWorker",
    "InitialState",
    "ModelSpec",
    "OpenedDevice",
    "PageCopy",
    "PlannedRow",
    "PromptScoring",
    "ReadOut",
    "RowFault",
    "RowOutcome",
    "RowSampling",
    "RowScores",
    "SpecialTextTokenizer",
    "StepDone",
    "StepFault",
    "StepReport",
    "StepRow",
    "Tokenizer",
    "TransferDone",
    "TransferReport",
    "TransferRow",
    "TransferStep",
    "WorkerContext",
]


@attrs.frozen
class CopyOf:
    """The row's slot starts as a bit-exact copy of ``slot``, made before the row is computed."""

    slot: SlotIndex
    place: Place = Place.DEVICE


@attrs.frozen
class PageCopy:
    """Page ``target`` starts as a bit-exact copy of ``source``, made before the row is computed."""

    source: PageIndex
    target: PageIndex
    place: Place = Place.DEVICE
    """Where the source is; the target is where the row's claim lives."""


_Filled = Literal["zeros", "kept"]
InitialState = CopyOf | StateImage | _Filled
"""What the row's slot holds when the step begins.

``"zeros"``: the device clears it first. ``"kept"``: it holds this row's state at ``position``. An
image is written to the row's slot and pages first, and ``position`` is the image's.
"""


@attrs.frozen
class RowSampling:
    """How to draw one token from the logits after the row's last token.

    The draw is a function of ``(key, index)``, the logits and the turn's own tokens alone: ``key``
    folds seed and turn into 64 bits, ``index`` counts the turn's generated tokens from 0. No
    generator keeps state, so batching, preemption and replay draw alike.
    """

    temperature: float
    """0 means greedy: the token with the highest logit, the lowest id among equals."""
    top_k: int
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: float
    """Keep the smallest set of likeliest tokens whose probability reaches this; 1 keeps all."""
    key: int
    index: int
    banned: tuple[int, ...] = ()
    """Token ids that may not be drawn (end-of-sequence ids before ``min_tokens``)."""
    rules: LogitRules | None = None
    """What else is asked; the same object for all draws of a turn, ``None`` for most turns. The
    turn's first ``index`` generated tokens are those that it may look at."""


@attrs.frozen
class PlannedRow:
    """A row as the scheduler plans it, by turn; the GPU pool adds where the claim lives."""

    tokens: Sequence[int]
    sampling: RowSampling | None
    scoring: PromptScoring | None = None
    image: StateImage | None = None
    """The state that it starts from, read from outside; the ledger knows of no base."""


@attrs.frozen
class StepRow:
    """One turn's part of a step: absorb ``tokens``, then perhaps draw the next one."""

    slot: SlotIndex | NoSlot
    initial: InitialState
    position: int
    """Tokens that the state has absorbed before this step."""
    tokens: Sequence[int]
    """Token ids to absorb, at positions ``position``, ``position + 1``, ...; at least one, but for
    a row that only loads an image."""
    pages: Sequence[PageIndex]
    """Page table in order of position, from ``first_page`` on; covers at least
    ``position + len(tokens)``. May be longer; never changed while the step runs."""
    tail_copy: PageCopy | None
    """The partly filled last page of the base, to be copied before the row is computed."""
    sampling: RowSampling | None
    """``None``: a prefill chunk that isn't the last; the row draws nothing."""
    scoring: PromptScoring | None = None
    """``None``: nobody asked for log-probabilities of this row's prompt."""
    page_copies: Sequence[PageCopy] = ()
    """Whole pages to be copied first, tail included: of a base in another place, say."""
    first_page: int = 0
    """Pages that were dropped: ``pages[0]`` holds positions from ``first_page * page_size`` on, and
    the row attends to nothing before them."""


@attrs.frozen
class DeviceStep:
    """A whole step. In order: poison, zero and copy, compute, draw."""

    step: int
    rows: Sequence[StepRow]
    freed_slots: Sequence[SlotIndex] = ()
    """Slots given back since the last step; a checking device poisons them first. Not in a step
    that a later one has overtaken (its worker hung): they may have new owners by then."""
    freed_pages: Sequence[PageIndex] = ()


@attrs.frozen
class StepDone:
    """The step ran: the outcome of each row, in their order."""

    tokens: tuple[RowOutcome, ...]
    compute_s: float = 0.0


@attrs.frozen
class StepFault:
    """The step failed; every row's slot and exclusive pages are undefined now."""

    why: str
    """What went wrong; of which step is said by whoever passes it on, so not here."""
    error: BaseException | None = attrs.field(default=None, eq=False)
    device_lost: bool = False
    """True when no later step on this device can succeed."""


StepReport = StepDone | StepFault


@attrs.frozen
class CopyOut:
    """Copy a state from the device's memory to the host's, bit for bit."""

    source: SlotIndex | NoSlot
    target: SlotIndex | NoSlot
    """In host memory; ``NO_SLOT`` for a model without slots, as ``source``."""
    pages: Sequence[PageCopy]
    """Sources on the device, targets in host memory."""


@attrs.frozen
class ReadOut:
    """Read a state into an image; it stays where it is."""

    place: Place
    slot: SlotIndex | NoSlot
    pages: Sequence[PageIndex]
    position: int
    first_page: int = 0


TransferRow = CopyOut | ReadOut


@attrs.frozen
class TransferStep:
    """Copies without tokens. Runs beside the steps that compute, and touches nothing of theirs.

    It reads states that are pinned and writes host memory that nobody else has.
    """

    step: int
    rows: Sequence[TransferRow]
    freed_slots: Sequence[SlotIndex] = ()
    """Of host memory, given back since the last transfer; a checking device poisons them first."""
    freed_pages: Sequence[PageIndex] = ()


@attrs.frozen
class TransferDone:
    """All rows were copied; an image for each row that was read out."""

    images: tuple[StateImage | None, ...]
    copy_s: float = 0.0


TransferReport = TransferDone | StepFault


@attrs.frozen
class ModelSpec:
    """What the model needs from the pools, and its fixed numbers."""

    name: str
    vocab_size: int
    max_model_len: int
    """Most tokens (prompt and generated) that one sequence may hold."""
    eos_token_ids: tuple[int, ...]
    uses_slots: bool
    """True when the model has recurrent layers."""
    uses_pages: bool
    """True when the model has attention layers."""
    slot_bytes: int
    page_token_bytes: int
    """Bytes of key/value cache per token over all attention layers."""
    num_parameters: int = 0
    dtype: str = "none"
    fingerprint: str = ""
    """Equal for two runs if a state of one is valid in the other; empty: the device has none."""
    state_dtype: str = "none"
    """Of the recurrent state."""
    slides: bool = False
    """Whether its attention layers still make sense when the oldest positions are dropped."""
    default_params: SamplingParams | None = None
    """How its makers mean it to be sampled; for requests that come without parameters."""


@attrs.frozen
class DeviceLimits:
    """How large the arenas are, and the largest step that the kernel will ever submit."""

    num_slots: int
    num_pages: int
    page_size: int
    max_rows: int
    max_step_tokens: int
    host_slots: int = 0
    """Slots in host memory, for states at rest and preempted turns."""
    host_pages: int = 0


@attrs.frozen
class WorkerContext:
    """What the kernel lends a worker."""

    call_later: Callable[[float, Callable[[], None]], object]
    """Run a callback on the dispatcher after so many seconds of the engine's own clock."""


class DeviceWorker(Protocol):
    """Runs submitted steps in order, off the event loop. A worker is used by one engine."""

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        """Queue a step and return at once; ``done`` is called exactly once, from any thread.

        Errors of the step are reported as :class:`StepFault`, never raised here.
        """
        ...

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        """As ``submit``, for copies: in order among themselves, and beside the steps that compute.

        A transfer never waits for a step, nor a step for a transfer.
        """
        ...

    def stop(self) -> None:
        """Ask the worker to end after the step that runs; what is queued is reported as failed."""
        ...

    def join(self, timeout_s: float, /) -> bool:
        """Block until the worker has ended; False when it still runs at the deadline."""
        ...


class Device(Protocol):
    """A model on some hardware, with its arenas."""

    @property
    def model(self) -> ModelSpec: ...

    def allocate(self, limits: DeviceLimits, /) -> None:
        """Allocate the arenas; called once, before the first worker. May block."""
        ...

    def start_worker(self, context: WorkerContext, /) -> DeviceWorker:
        """Start a worker over the same arenas (another one after the death of the pool actor)."""
        ...

    def close(self) -> None:
        """Release the arenas; no worker runs any more."""
        ...


class Tokenizer(Protocol):
    """Text to token ids and back. Called outside of actors' handlers; must be thread-safe."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str, /) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], /) -> str: ...


@runtime_checkable
class SpecialTextTokenizer(Tokenizer, Protocol):
    """A tokenizer that can also say what special tokens look like."""

    def decode_with_special(self, token_ids: Sequence[int], /) -> str:
        """As ``decode``, special tokens included."""
        ...


@attrs.frozen
class OpenedDevice:
    """What an entry point of the group ``tenure.devices`` returns."""

    device: Device
    tokenizer: Tokenizer
    memory: AskMemory | None = None
    """``None``: the pools are sized without regard to memory."""
    constraints: ConstraintCompiler | None = None
    """``None``: no form of output can be asked for."""
    chat: ChatFormat | None = None
    """``None``: prompts are text or token ids, no messages."""
    opening_ids: tuple[int, ...] = ()
    """What a text at the start of a log begins with, as a rule the beginning-of-sequence id.
    Token ids and messages are taken as they are."""


class DeviceFactory(Protocol):
    """The callable behind an entry point of the group ``tenure.devices``."""

    def __call__(
        self, *, model: str, device: str, dtype: str, state_dtype: str, progress: OnProgress
    ) -> OpenedDevice: ...
