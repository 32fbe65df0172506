"""``tenure chat``: a session on a terminal, a turn a line."""

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import click
from anyio.abc import TaskStatus

from adapters.cli.chat_commands import PASSING, carry_out, describe
from adapters.cli.engine_options import config_from, engine_options, store_options
from adapters.cli.event_log import event_log, log_option
from adapters.cli.load_bar import load_bar
from adapters.cli.sampling_options import SAMPLING_NAMES, params_from, sampling_options
from kernel import (
    Engine,
    EngineConfig,
    Prompt,
    SamplingParams,
    Session,
)

__all__ = ["Conversation", "chat"]

PROMPT = "> "
KEPT = "chat"
"""The conversation of a store that is meant when none is named."""


@click.command()
@click.option("--system", default="", help="What the model is told before the first line.")
@click.option(
    "--session",
    "name",
    help="Which conversation of the store to go on with, or to begin.  [default: chat]",
)
@sampling_options
@log_option
@store_options
@engine_options
def chat(system: str, name: str | None, log: Path | None, **options: Any) -> None:
    """Talk to a model in one session that keeps its state from turn to turn.

    What you type is a message by the model's chat template; a model without one continues the
    text. Ctrl-C interrupts the answer: what was shown stays in the session. /undo takes the last
    line and its answer back, /checkpoint NAME marks a place and /restore NAME goes back to it,
    /info shows the session, /help the commands, /quit or the end of input leaves.

    With --session-store DIR the conversation is kept there, and the next chat goes on with it;
    "tenure sessions DIR" lists what is there.
    """
    if name is not None and options["session_store"] is None:
        raise click.UsageError("--session names a conversation of a store; give --session-store")
    params_from(options)  # what makes no sense is said before a model is loaded
    engine_part = {name: value for name, value in options.items() if name not in SAMPLING_NAMES}
    # Pools for one conversation: whoever talks to a model of gigabytes wants no room for more.
    config = config_from(engine_part, log_events=False, max_num_seqs=1, max_sessions=1)
    with event_log(log) as logger:
        anyio.run(_chat, config, system, name or KEPT, options, logger)


async def _chat(
    config: EngineConfig, system: str, name: str, options: dict[str, Any], logger: Any
) -> None:
    with load_bar(options["progress"]) as progress:
        async with (
            Engine.open(config, progress=progress, logger=logger) as engine,
            _session(engine, config, name) as session,
        ):
            if session.info.num_tokens:
                click.echo(describe(session.info))
            params = params_from(options, engine.core.model.default_params)
            speaks = engine.takes_messages
            await Conversation(session, params, system=system, takes_messages=speaks).run()


def _session(engine: Engine, config: EngineConfig, name: str) -> Session:
    """A session that ends with the block, or one that stays in the store and may be there yet."""
    if config.session_store is None:
        return engine.session()
    return engine.session(session_id=name, detached=True, resume=True)


class Conversation:
    """One session and the person before it."""

    def __init__(
        self,
        session: Session,
        params: SamplingParams,
        *,
        system: str = "",
        takes_messages: bool = False,
    ) -> None:
        self._session = session
        self._params = params
        self._system = system
        self._takes_messages = takes_messages
        self._answers = False

    async def run(self) -> None:
        """Answer lines until the person leaves; Ctrl-C interrupts the answer meanwhile."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._listen_for_interrupts)
            await self._read_and_answer()
            tasks.cancel_scope.cancel()

    async def _read_and_answer(self) -> None:
        while True:
            line = await _read_line()
            if line is None or line.strip() == "/quit":
                return
            if not line:
                continue
            said = await carry_out(self._session, line)
            if said is None:
                await self._answer(line)
            else:
                click.echo(said)

    async def _answer(self, line: str) -> None:
        self._answers = True
        prompt = self._prompt(line)
        try:
            async with self._session.turn(prompt, self._params, on_exit="keep") as turn:
                async for delta in turn:
                    click.echo(delta.text, nl=False)
        except PASSING as error:
            # For instance a conversation that has reached the model's length; it stays readable.
            click.echo(f"{type(error).__name__}: {error}", err=True)
        finally:
            self._answers = False
        click.echo()

    def _prompt(self, line: str) -> Prompt:
        """What a line adds to the session, with what stands before all lines if it is the first."""
        is_first = not self._session.info.num_tokens
        if self._takes_messages:
            system = [{"role": "system", "content": self._system}] if self._system else []
            return [*(system if is_first else []), {"role": "user", "content": line}]
        if is_first:
            return f"{self._system}\n{line}" if self._system else line
        return f"\n{line}"

    async def _listen_for_interrupts(
        self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if not self._answers:
                    click.echo("\n/quit leaves", err=True)
                    continue
                # All is kept, and shown before the turn ends: a number could be overtaken by what
                # is printed meanwhile. An answer that has just ended by itself is not cut.
                with suppress(*PASSING):
                    await self._session.interrupt()


async def _read_line() -> str | None:
    """The next line that is typed, or None at the end of input."""
    try:
        line = await anyio.to_thread.run_sync(input, PROMPT, abandon_on_cancel=True)
    except EOFError:
        return None
    return line.strip("\n")
