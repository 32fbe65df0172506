"""``tenure sessions``: what a session store holds."""

from pathlib import Path

import attrs
import click

from adapters.cli.output import counted, shown, write_json
from adapters.session_store.listing import KeptSession, KeptSessions, list_sessions
from kernel.memory.byte_sizes import format_bytes

__all__ = ["sessions"]


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def sessions(directory: Path, *, as_json: bool) -> None:
    """List the sessions in DIRECTORY, which was the session_store of an engine.

    No engine may have it open. Nothing is changed, and no model is loaded.
    """
    kept = list_sessions(directory)
    if as_json:
        write_json(
            {
                **attrs.asdict(kept.header),
                "sessions": [attrs.asdict(session) for session in kept.sessions],
            }
        )
        return
    for session in kept.sessions:
        click.echo(_line(session))
    click.echo(_sum(kept))


def _line(session: KeptSession) -> str:
    state = (
        "only the log"
        if session.state_position is None
        else f"state at {session.state_position}, {format_bytes(session.state_bytes)}"
    )
    turns, tokens = counted(session.turns, "turn"), counted(session.tokens, "token")
    return f"{shown(session.session_id)}: {turns}, {tokens}, {state}"


def _sum(kept: KeptSessions) -> str:
    what = counted(len(kept.sessions), "session")
    tokens = counted(sum(session.tokens for session in kept.sessions), "token")
    nbytes = sum(session.state_bytes for session in kept.sessions)
    return (
        f"{what} of {shown(kept.header.model)} ({kept.header.dtype}): {tokens},"
        f" {format_bytes(nbytes)} of states"
    )
