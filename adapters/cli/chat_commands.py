"""What a line of ``tenure chat`` may ask of the session itself, instead of the model."""

from kernel import ClientError, Overloaded, Session, SessionInfo

__all__ = ["carry_out", "describe"]


async def carry_out(session: Session, line: str) -> str | None:
    """Do what a line asks for, and say what came of it; ``None``: the line is for the model."""
    command, _, name = line.strip().partition(" ")
    name = name.strip()
    try:
        match command:
            case "/info" if not name:
                return describe(session.info)
            case "/undo" if not name:
                return await _undo(session)
            case "/checkpoint":
                made = await session.checkpoint(name or None)
                return f"{made}: {_turns(session.info.turns)}"
            case "/restore":
                return await _restore(session, name)
            case _:
                return None
    except (ClientError, Overloaded) as error:
        return f"{type(error).__name__}: {error}"


async def _undo(session: Session) -> str:
    if not session.info.turns:
        return "there is nothing to undo"
    return f"undone; {_turns(await session.rewind(-1))} left"


async def _restore(session: Session, name: str) -> str:
    marks = {mark.name: _turns(mark.turns) for mark in session.info.checkpoints}
    if not name:
        listed = ", ".join(f"{mark} ({turns})" for mark, turns in marks.items())
        return f"/restore NAME goes back to one of: {listed or 'none so far'}"
    return f"{name}: {_turns(await session.restore(name))}"


def _turns(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"


def describe(info: SessionInfo) -> str:
    """One line about a session, and one for each of its checkpoints."""
    whole = (
        f"{info.session_id}: {info.state}, {info.turns} turns, {info.num_tokens} tokens "
        f"({info.pending_tokens} pending), version {info.version}, state on {info.place}, "
        f"{info.bytes} bytes"
    )
    marks = [
        f"  {mark.name}: {_turns(mark.turns)}, {mark.num_tokens} tokens"
        + ("" if mark.has_state else ", computed again when restored")
        for mark in info.checkpoints
    ]
    return "\n".join([whole, *marks])
