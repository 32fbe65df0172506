"""The demo's verdict: what clients and engine counted, and what the replay of the log says."""

from collections.abc import Sequence

import attrs

from adapters.cli.demo.tally import Tally, median_ms
from adapters.trace_audit import TraceAudit
from kernel import EngineStats

__all__ = ["DemoReport", "describe", "make_report"]


@attrs.frozen(kw_only=True)
class DemoReport:
    """One run of the demo; the fields are the keys of ``--json``."""

    sessions: int
    turns: int
    one_shots: int
    tokens: int
    tokens_per_s: float
    rollbacks: int
    preemptions: int
    forced_parks: int
    recomputed_tokens: int
    cached_tokens: int
    cancelled: int
    leaked: int
    double_frees: int
    reclaimed: int
    conserved: bool
    ttft_first_turn_ms: float | None
    ttft_later_turn_ms: float | None
    seed: int


def make_report(
    *, tally: Tally, stats: EngineStats, audit: TraceAudit, wall_s: float, seed: int
) -> DemoReport:
    """Put the sources together; ownership figures come from the log alone."""
    return DemoReport(
        sessions=tally.sessions,
        turns=tally.turns,
        one_shots=tally.one_shots,
        tokens=tally.tokens,
        tokens_per_s=round(tally.tokens / wall_s, 1) if wall_s > 0 else 0.0,
        rollbacks=audit.count("claim.rolled_back"),
        preemptions=stats.preemptions,
        forced_parks=stats.forced_parks,
        recomputed_tokens=stats.recomputed_tokens,
        cached_tokens=stats.cached_tokens,
        cancelled=tally.cancelled,
        leaked=audit.leaked,
        double_frees=audit.double_frees,
        reclaimed=audit.reclaimed,
        conserved=audit.conserved,
        ttft_first_turn_ms=median_ms(tally.ttft_first_s),
        ttft_later_turn_ms=median_ms(tally.ttft_later_s),
        seed=seed,
    )


def describe(report: DemoReport, audit: TraceAudit) -> Sequence[str]:
    """The report as lines for people."""
    first, later = _ms(report.ttft_first_turn_ms), _ms(report.ttft_later_turn_ms)
    lines = [
        f"{report.sessions} sessions, {report.turns} turns, {report.one_shots} one-shots",
        f"{report.tokens} tokens at {report.tokens_per_s:.0f}/s",
        f"first token: {first} on first turns, {later} on later ones (median, queueing included)",
        f"{report.cancelled} cancelled, {report.rollbacks} rollbacks",
        f"{report.preemptions} preemptions, {report.forced_parks} forced parks",
        f"{report.cached_tokens} tokens came from kept states",
        f"{report.recomputed_tokens} tokens were computed again",
        f"replay of {audit.lines} logged events: {report.leaked} leaked",
        f"{report.double_frees} double frees, {report.reclaimed} reclaimed",
    ]
    problems = [problem for engine in audit.engines for problem in engine.problems]
    lines.extend(f"  {problem}" for problem in problems[:8])
    if len(problems) > 8:
        lines.append(f"  and {sum(e.num_problems for e in audit.engines) - 8} more")
    verdict = "every slot and page had one owner" if report.conserved else "NOT CONSERVED"
    lines.append(f"verdict: {verdict} (seed {report.seed})")
    return lines


def _ms(value: float | None) -> str:
    return "none seen" if value is None else f"{value:.0f} ms"
