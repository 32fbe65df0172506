"""Turns as the scheduler sees them, made without a session."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Literal

from kernel.actors.reply import Reply
from kernel.ids import TurnId
from kernel.params import SamplingParams
from kernel.requests.detokenizer import IncrementalDetokenizer
from kernel.requests.output_buffer import TurnOutput
from kernel.turn import OpenTurn, TurnRequest
from ownership import ZEROS, Base, CustodianId

__all__ = ["make_output", "make_request", "make_turn"]


def make_output(
    *,
    detokenizer: IncrementalDetokenizer | None = None,
    decode_early: bool = False,
    clock: Callable[[], float] = lambda: 0.0,
    on_end: Callable[[], None] = lambda: None,
    watch_reader: bool = False,
) -> TurnOutput:
    return TurnOutput(
        detokenizer,
        decode_early=decode_early,
        clock=clock,
        on_end=on_end,
        watch_reader=watch_reader,
    )


def make_turn(
    name: str,
    *,
    arrival: int = 0,
    history: Sequence[int] = (),
    new: Sequence[int] = (1,),
    base: Base = ZEROS,
    kind: Literal["generate", "append"] = "generate",
    session: str | None = None,
    **fields: Any,
) -> OpenTurn:
    """A turn of rank ``arrival``; by default greedy, of one token of input."""
    given: dict[str, Any] = {
        "absorb_first": False,
        "max_tokens": 8,
        "min_tokens": 0,
        "stop_ids": frozenset[int](),
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "key": 0,
        "output": make_output(),
        "absorbed_before": 0,
        **fields,
    }
    turn = OpenTurn(
        id=TurnId(name),
        session=CustodianId(session or f"session:{name}"),
        history=array("I", history),
        history_len=len(history),
        new=list(new),
        input_len=len(new),
        base=base,
        kind=kind,
        **given,
    )
    turn.rank = (float(arrival), arrival)
    return turn


def make_request(
    name: str,
    tokens: Sequence[int],
    params: SamplingParams | None = None,
    *,
    kind: Literal["generate", "append"] = "generate",
    output: TurnOutput | None = None,
    **fields: Any,
) -> TurnRequest:
    """A request as the desk makes it out; by default greedy, four tokens."""
    return TurnRequest(
        id=TurnId(name),
        kind=kind,
        tokens=list(tokens),
        params=params or SamplingParams(temperature=0, max_tokens=4, ignore_eos=True),
        output=output or make_output(watch_reader="stall_timeout_s" in fields),
        accepted=Reply(),
        **fields,
    )
