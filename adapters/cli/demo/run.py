"""One run of the demo: engine, clients, view, and then the replay of what was logged."""

from pathlib import Path

import anyio
import attrs

from adapters.cli.demo.board import Board
from adapters.cli.demo.clients import run_clients
from adapters.cli.demo.plan import Plan
from adapters.cli.demo.report import DemoReport, make_report
from adapters.cli.demo.tally import Tally
from adapters.cli.demo.view import Moment, View
from adapters.logs import open_event_log
from adapters.trace_audit import TraceAudit, audit_file
from kernel import Engine, EngineConfig, OpenedDevice

__all__ = ["DemoRun", "run_demo"]


@attrs.frozen(kw_only=True)
class DemoRun:
    """What came out of a run."""

    report: DemoReport
    audit: TraceAudit
    tally: Tally


async def run_demo(
    config: EngineConfig,
    plan: Plan,
    *,
    log: Path,
    view: View,
    limit_s: float,
    device: OpenedDevice | None = None,
) -> DemoRun:
    """Run all clients, close the engine, and judge it by its event log alone.

    Args:
        config: whose seed is the one that the report names.
        plan: what the clients do.
        log: where events are written; audited at the end.
        view: shows how it goes.
        limit_s: clients that still run then are disconnected.
        device: one to use instead of the one that ``config`` names.
    """
    board, tally = Board(), Tally()
    with open_event_log(log, watch=board.watch) as logger:
        async with Engine.open(config, device=device, logger=logger) as engine:
            started = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_watch, engine, board, tally, view)
                await run_clients(engine, plan, tally, limit_s=limit_s)
                tasks.cancel_scope.cancel()
            wall_s = anyio.current_time() - started
            stats = engine.stats()
    audit = audit_file(log)
    report = make_report(tally=tally, stats=stats, audit=audit, wall_s=wall_s, seed=config.seed)
    return DemoRun(report=report, audit=audit, tally=tally)


async def _watch(engine: Engine, board: Board, tally: Tally, view: View) -> None:
    started = anyio.current_time()
    with view:
        try:
            while True:
                await anyio.sleep(view.interval_s)
                _show(engine, board, tally, view, started)
        finally:
            _show(engine, board, tally, view, started)


def _show(engine: Engine, board: Board, tally: Tally, view: View, started: float) -> None:
    elapsed_s = anyio.current_time() - started
    view.show(Moment(board=board, tally=tally, stats=engine.stats(), elapsed_s=elapsed_s))
