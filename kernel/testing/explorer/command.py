"""``python -m kernel.testing explore``."""

import argparse
import concurrent.futures
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol, TextIO

from kernel.testing.explorer.large_worlds import LARGE, WORLDS
from kernel.testing.explorer.report import Exploration, Failure
from kernel.testing.explorer.search import explore
from kernel.testing.explorer.world import World
from kernel.testing.explorer.worlds import CI

__all__ = ["add_commands", "as_json", "run"]


class Commands(Protocol):
    """What ``add_subparsers`` gives."""

    def add_parser(self, name: str, *, help: str) -> argparse.ArgumentParser:  # noqa: A002
        """Add a command; the word is argparse's."""
        ...


def add_commands(commands: Commands) -> None:
    """Add ``explore`` to a command line; it sets ``run``."""
    parser = commands.add_parser("explore", help="every order of events of small worlds")
    parser.add_argument(
        "--world",
        default="ci",
        metavar="NAME",
        help="one world, several with commas, MODULE:ATTRIBUTE of your own, ci, or all",
    )
    parser.add_argument("--list", action="store_true", help="say which worlds there are")
    parser.add_argument("--max-states", type=int, default=None, metavar="N", help="for each world")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one world each")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first")
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    parser.add_argument("--progress", action="store_true", help="a line now and then on stderr")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Explore; 0: nothing is broken, 1: something is, 2: there is no such world."""
    if given.list:
        for world in LARGE:
            _say(f"{world.name:24} {world.about}")
        return 0
    try:
        worlds = find_worlds(given.world)
    except (LookupError, ImportError, AttributeError, TypeError) as error:
        _say(f"explore: no world {given.world!r}: {error}", file=sys.stderr)
        return 2
    begun = time.perf_counter()
    done: list[Exploration] = []
    for exploration in _explorations(worlds, given):
        done.append(exploration)
        if not given.json:
            _say(_line(exploration))
            for failure in exploration.failures:
                _say(failure)
    report = as_json(done, time.perf_counter() - begun, is_early=given.until_failure)
    if given.json:
        _say(json.dumps(report, indent=1))
    else:
        _say(
            f"{report['states']} states, {report['transitions']} transitions, "
            f"{report['seconds']} s, failed {report['failed']}"
        )
    return 1 if report["failed"] else 0


def find_worlds(name: str) -> list[World]:
    """The worlds of a name on the command line.

    Raises:
        LookupError: there is none.
    """
    if name == "ci":
        return list(CI)
    if name == "all":
        return list(LARGE)
    if ":" in name:
        module, _, attribute = name.partition(":")
        found: object = getattr(import_module(module), attribute)
        if not isinstance(found, World):
            raise TypeError(f"{found!r} is no World")
        return [found]
    return [WORLDS[one] for one in name.split(",")]


def _explorations(worlds: Sequence[World], given: argparse.Namespace) -> Iterator[Exploration]:
    if given.jobs > 1:
        method = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(given.jobs, mp_context=method) as pool:
            yield from pool.map(_in_process, worlds, [given] * len(worlds))
        return
    for world in worlds:
        exploration = _in_process(world, given)
        yield exploration
        if given.until_failure and exploration.failures:
            return


def _say(text: object, *, file: TextIO | None = None) -> None:
    stream = sys.stdout if file is None else file
    stream.write(f"{text}\n")
    stream.flush()


def _in_process(world: World, given: argparse.Namespace) -> Exploration:
    return explore(
        world,
        max_states=given.max_states,
        stop_early=given.until_failure,
        progress=_tell if given.progress else None,
    )


def _tell(world: World, states: int, transitions: int, depth: int) -> None:
    _say(
        f"{world.name}: {states} states, {transitions} transitions, depth {depth}",
        file=sys.stderr,
    )


def _line(one: Exploration) -> str:
    rest = "" if one.is_complete else ", not all of them"
    unmet = f", never seen: {', '.join(one.unmet)}" if one.unmet else ""
    return (
        f"{one.world}: {one.states} states{rest}, {one.transitions} transitions, depth "
        f"{one.depth}, {one.seconds:.1f} s, failed {one.failed}{unmet}"
    )


def as_json(
    done: Sequence[Exploration], seconds: float, *, is_early: bool = False
) -> dict[str, Any]:
    """What a program reads.

    Args:
        is_early: the run may have ended at the first failure, so what was not seen doesn't count.
    """
    failures = [failure for one in done for failure in one.failures]
    unmet = 0 if is_early else sum(len(one.unmet) for one in done)
    seen: Counter[str] = Counter()
    for one in done:
        seen.update(one.sometimes)
    return {
        "states": sum(one.states for one in done),
        "transitions": sum(one.transitions for one in done),
        "depth": max((one.depth for one in done), default=0),
        "seconds": round(seconds, 1),
        "failed": len(failures) + unmet,
        "sometimes": dict(sorted(seen.items())),
        "trace_length": min((len(failure.trace) for failure in failures), default=None),
        "failures": [_failure(failure) for failure in failures],
        "worlds": [_world(one) for one in done],
    }


def _world(one: Exploration) -> dict[str, Any]:
    return {
        "world": one.world,
        "states": one.states,
        "transitions": one.transitions,
        "depth": one.depth,
        "seconds": round(one.seconds, 1),
        "complete": one.is_complete,
        "failed": one.failed,
        "unmet": list(one.unmet),
        "sometimes": dict(sorted(one.sometimes.items())),
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "world": failure.world,
        "property": failure.property,
        "message": failure.message,
        "length": len(failure.trace),
        "trace": list(failure.told),
    }
