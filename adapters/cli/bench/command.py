"""``tenure bench``, and ``tenure bench core``: figures as a table, or as one JSON object."""

from importlib import import_module

import click

from adapters.cli.bench.sessions import sessions
from adapters.cli.bench.table import plain
from adapters.cli.output import error_console, write_json

__all__ = ["bench"]

CORE = {
    "ledger_ns": "ownership",
    "lease_us": "ownership",
    "hop_us": "hop",
    "step_ms": "steps",
    "idle_sessions": "idle",
    "ttft_ms": "first_token",
}
"""Each figure and the module that measures it, imported when asked for: one of them needs torch."""

TARGETS = {
    "ledger_ns": "1500",
    "lease_us": "50",
    "hop_us": "2",
    "step_ms": "0.1, 0.5, 2.5",
    "ttft_ms": "flat within 20 %",
}


@click.group()
def bench() -> None:
    """Measure what Tenure itself costs, on this machine."""


bench.add_command(sessions)


@bench.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--only", type=click.Choice(list(CORE)), multiple=True, help="Some figures only.")
def core(as_json: bool, only: tuple[str, ...]) -> None:
    """Measure ownership, messages, steps, idle sessions, and the first token of a later turn.

    Takes a minute or two. The machine should be idle: every figure is wall-clock time.
    """
    console = error_console()
    results: dict[str, object] = {}
    for name in only or CORE:
        console.print(f"measuring {name} ...", highlight=False)
        results[name] = _measure(name)
    if as_json:
        write_json(results)
        return
    for name, value in results.items():
        target = f"   (target {TARGETS[name]})" if name in TARGETS else ""
        click.echo(f"{name}: {plain(value)}{target}")


def _measure(name: str) -> object:
    module = import_module(f"adapters.cli.bench.{CORE[name]}")
    return getattr(module, name)()
