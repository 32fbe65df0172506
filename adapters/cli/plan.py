"""``tenure plan``: what a model takes, and how many turns and sessions fit, before it is loaded."""

from typing import TYPE_CHECKING, Any

import attrs
import click
from rich.console import Console
from rich.table import Table

from adapters.cli.engine_options import config_from
from adapters.cli.output import write_json
from kernel import EngineConfig
from kernel.memory.byte_sizes import format_bytes
from kernel.memory.plan import USUAL_CONTEXT

if TYPE_CHECKING:
    from adapters.torch_device.planning import ModelPlan

__all__ = ["plan"]

_COUNT = click.IntRange(min=1)


@click.command()
@click.argument("model", default="bundled")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--dtype", default="auto", show_default=True, help="Number type of weights.")
@click.option("--state-dtype", default="auto", show_default=True, help="Of the recurrent state.")
@click.option("--memory", "memory_bytes", help="Memory of the engine, like 8GiB; weights too.")
@click.option("--memory-fraction", type=float, help="Share of what is free beside the weights.")
@click.option("--host-memory", "host_memory_bytes", help="Of the host, like 16GiB; 0: none.")
@click.option("--max-num-seqs", type=_COUNT, help="Turns that run at once.")
@click.option("--max-sessions", type=_COUNT, help="Sessions that may be open.")
@click.option("--max-model-len", type=_COUNT, help="Most tokens of one sequence.")
@click.option("--max-num-batched-tokens", type=_COUNT, help="Most tokens of a step.")
@click.option("--page-size", type=_COUNT, help="Token positions of a page.")
@click.option("--num-slots", type=_COUNT, help="Recurrent states; instead of working them out.")
@click.option("--num-pages", type=_COUNT, help="Key/value pages; instead of working them out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(as_json: bool, **options: Any) -> None:
    """Show what MODEL takes: bytes of a slot and a page, how many fit, the longest turn.

    Needs config.json only. Where weights are there too, their headers are checked against it;
    no tensor is read. The options are those of EngineConfig.
    """
    from adapters.torch_device.planning import plan_model  # noqa: PLC0415 - imports torch

    config = config_from(options)
    found = plan_model(config)
    if as_json:
        write_json(_facts(found))
        return
    Console(soft_wrap=True).print(_table(found, config))
    for line in _lines(found, config):
        click.echo(line)


def _facts(found: "ModelPlan") -> dict[str, object]:
    plan = found.plan
    sums = (
        "slots_bytes",
        "pages_bytes",
        "total_bytes",
        "host_bytes",
        "largest_turn",
        "usual_sequences",
        "host_sequences",
    )
    facts: dict[str, object] = attrs.asdict(plan) | {name: getattr(plan, name) for name in sums}
    mine = attrs.asdict(found, recurse=False)
    return facts | {name: value for name, value in mine.items() if name != "plan"}


def _table(found: "ModelPlan", config: EngineConfig) -> Table:
    plan = found.plan
    table = Table("", *("each", "count", "bytes"), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("weights", "", f"{found.num_parameters:,}", format_bytes(plan.weights_bytes))
    step = f"step of {config.max_num_seqs} rows, {config.max_num_batched_tokens} tokens, at most"
    table.add_row(step, "", "", format_bytes(plan.step_bytes))
    for name, each, count, total in (
        ("slots", plan.slot_bytes, plan.num_slots, plan.slots_bytes),
        (f"pages of {plan.page_size} tokens", plan.page_bytes, plan.num_pages, plan.pages_bytes),
    ):
        table.add_row(name, format_bytes(each), f"{count:,} + 1" if count else "0", _size(total))
    table.add_row("all", "", "", format_bytes(plan.total_bytes))
    for name, each, count in (
        ("slots in host memory", plan.slot_bytes, plan.host_slots),
        ("pages in host memory", plan.page_bytes, plan.host_pages),
    ):
        if count:
            table.add_row(name, format_bytes(each), f"{count:,}", _size(count * each))
    return table


def _size(total: int) -> str:
    return format_bytes(total) if total else "none"


def _lines(found: "ModelPlan", config: EngineConfig) -> list[str]:
    plan = found.plan
    usual = min(USUAL_CONTEXT, plan.max_model_len)
    types = f"{plan.model}: weights in {found.dtype}"
    if plan.num_slots:
        types += f", recurrent state in {found.state_dtype}"
    running = min(config.max_num_seqs, plan.usual_sequences)
    at_once = (
        f"on the device at once: {plan.usual_sequences:,} sequences of {usual:,} tokens, of which"
        f" {running} can run; a session at rest is one, a turn of it another"
    )
    if plan.host_bytes:
        at_once += f"; in host memory, at rest or waiting: {plan.host_sequences:,} more"
    lines = [types, f"largest turn: {plan.largest_turn:,} tokens, history included", at_once]
    if found.free_bytes is not None:
        lines.append(f"free on {config.device} now: {format_bytes(found.free_bytes)}")
    if not found.checked_weights:
        lines.append("no weights there; from the configuration alone")
    return lines
