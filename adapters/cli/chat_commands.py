"""What a line of ``tenure chat`` may ask of the session itself, instead of the model."""

from difflib import get_close_matches

from adapters.cli.output import counted, shown
from kernel import ClientError, Overloaded, Session, SessionInfo, StepError, StoreError

__all__ = ["PASSING", "carry_out", "describe"]

PASSING = (ClientError, Overloaded, StepError, StoreError)
"""What one line came to, and the conversation may go on after: it is as it was before."""

HELP = {
    "/undo": "takes the last line and its answer back",
    "/checkpoint": "NAME marks this place; without a name a fresh one is made",
    "/restore": "NAME goes back to a place; without a name: which there are",
    "/info": "shows the session",
    "/help": "shows this",
    "/quit": "leaves, as the end of input does",
}
MISTYPED = 0.8
"""How alike two words are, from 0 to 1, of which one is taken for the other mistyped."""


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
                return f"{made}: {_turns(session.info.turns or 0)}"
            case "/restore":
                return await _restore(session, name)
            case "/help":
                return "\n".join(f"{known} {what}" for known, what in HELP.items())
            case _:
                return _refuse(command)
    except PASSING as error:
        return f"{type(error).__name__}: {error}"


def _refuse(word: str) -> str | None:
    """What is wrong with a line that was hardly meant for the model; ``None``: it was."""
    if word in HELP:
        return f"{word} {HELP[word]}; nothing may stand after it"
    near = get_close_matches(word, HELP, n=1, cutoff=MISTYPED) if word.startswith("/") else []
    return f"no command {word}; did you mean {near[0]}? /help lists them" if near else None


async def _undo(session: Session) -> str:
    if not session.info.turns:
        return "there is nothing to undo"
    return f"undone; {_turns(await session.rewind(-1))} left"


async def _restore(session: Session, name: str) -> str:
    marks = {mark.name: _turns(mark.turns) for mark in session.info.checkpoints or ()}
    if not name:
        listed = ", ".join(f"{shown(mark)} ({turns})" for mark, turns in marks.items())
        return f"/restore NAME goes back to one of: {listed or 'none so far'}"
    return f"{name}: {_turns(await session.restore(name))}"


def _turns(count: int) -> str:
    return counted(count, "turn")


def _said(fact: object) -> str:
    return "?" if fact is None else str(fact)


def describe(info: SessionInfo) -> str:
    """One line about a session, and one for each of its checkpoints."""
    whole = (
        f"{shown(info.session_id)}: {info.state}, "
        f"{'?' if info.turns is None else _turns(info.turns)}, "
        f"{_said(info.num_tokens)} tokens ({_said(info.pending_tokens)} pending), "
        f"version {info.version}, state on {_said(info.place)}, "
        f"{info.bytes} bytes"
    )
    marks = [
        f"  {shown(mark.name)}: {_turns(mark.turns)}, {mark.num_tokens} tokens"
        + ("" if mark.has_state else ", computed again when restored")
        for mark in info.checkpoints or ()
    ]
    return "\n".join([whole, *marks])
