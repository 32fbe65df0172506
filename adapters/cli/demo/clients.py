"""The demo's clients: what each does with the engine, by its plan, as a user's code would."""

import math
from contextlib import suppress

import anyio

from adapters.cli.demo.plan import Fate, OneShotPlan, Plan, SessionPlan, TurnPlan
from adapters.cli.demo.tally import Tally
from kernel import (
    ClientError,
    Engine,
    RequestAborted,
    RunningTurn,
    SamplingParams,
    Session,
    TenureError,
)

__all__ = ["run_clients"]


async def run_clients(engine: Engine, plan: Plan, tally: Tally, *, limit_s: float) -> None:
    """Run all clients at once; those that still run at the limit lose their connection."""
    with anyio.move_on_after(limit_s):
        async with anyio.create_task_group() as tasks:
            for session in plan.sessions:
                tasks.start_soon(_run_session, engine, session, tally)
            for one_shot in plan.one_shots:
                tasks.start_soon(_run_one_shot, engine, one_shot, tally)


async def _run_session(engine: Engine, plan: SessionPlan, tally: Tally) -> None:
    try:
        async with engine.session(session_id=plan.name) as session:
            tally.sessions += 1
            if plan.preface is not None:
                await session.append(plan.preface)
            for number, turn in enumerate(plan.turns):
                await anyio.sleep(turn.pause_s)
                await _take_turn(session, plan.name, turn, number, tally)
                if turn.fate is Fate.CLOSE:
                    break
    except TenureError as error:
        tally.errors.append(f"{plan.name}: {type(error).__name__}: {error}")


async def _run_one_shot(engine: Engine, plan: OneShotPlan, tally: Tally) -> None:
    turn = plan.turn
    await anyio.sleep(turn.pause_s)
    tally.one_shots += 1
    try:
        with _connection(turn) as connection:
            async with engine.stream(turn.prompt, _params(turn), request_id=plan.name) as stream:
                await _listen(stream, None, plan.name, turn, 0, tally)
        if connection.cancelled_caught:
            tally.cancelled += 1
    except TenureError as error:
        tally.errors.append(f"{plan.name}: {type(error).__name__}: {error}")


async def _take_turn(
    session: Session, name: str, plan: TurnPlan, number: int, tally: Tally
) -> None:
    tally.turns += 1
    tally.fates[plan.fate] += 1
    try:
        with _connection(plan) as connection:
            request_id = f"{name}.{number + 1}"
            async with session.turn(plan.prompt, _params(plan), request_id=request_id) as turn:
                received = await _listen(turn, session, name, plan, number, tally)
            if plan.fate is Fate.LATE_INTERRUPT:
                # The user spoke while the end of the text was still being read aloud.
                with suppress(ClientError):
                    await session.interrupt(keep=received // 2)
        if connection.cancelled_caught:
            tally.cancelled += 1
    except RequestAborted:
        tally.cancelled += 1


async def _listen(
    turn: RunningTurn,
    session: Session | None,
    name: str,
    plan: TurnPlan,
    number: int,
    tally: Tally,
) -> int:
    """Read a turn's deltas until it ends or the plan says otherwise; returns the tokens seen."""
    started = anyio.current_time()
    received, text, acted = 0, [plan.prompt], False
    async for delta in turn:
        if not received and delta.token_ids:
            first_s = anyio.current_time() - started
            tally.saw_first_token(first_s, turn=number)
        received += len(delta.token_ids)
        tally.tokens += len(delta.token_ids)
        text.append(delta.text)
        if delta.finish_reason is not None or received < plan.after_tokens or acted:
            continue
        acted = True
        if plan.fate is Fate.CANCEL:
            tally.cancelled += 1
            break
        if session is not None and plan.fate is Fate.INTERRUPT:
            with suppress(ClientError):
                await session.interrupt(keep=received)
        if session is not None and plan.fate is Fate.CLOSE:
            tally.cancelled += 1
            await session.close()
            break
    tally.texts.append((name, "".join(text)))
    return received


def _params(plan: TurnPlan) -> SamplingParams:
    return SamplingParams(temperature=0.8, top_p=0.95, max_tokens=plan.max_tokens, seed=plan.seed)


def _connection(plan: TurnPlan) -> anyio.CancelScope:
    """A scope that a disconnecting client's connection ends with."""
    after_s = plan.after_s if plan.fate is Fate.DISCONNECT else math.inf
    return anyio.move_on_after(after_s)
