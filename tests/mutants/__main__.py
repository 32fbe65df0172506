"""``python -m tests.mutants``: plant each bug in a copy of the tree; each must be caught."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

import attrs

from tests.mutants import table
from tests.mutants.catalogue import all_mutants, system_mutants
from tests.mutants.ladder import BrokenLayerError, Verdict, check_clean, judge_all
from tests.mutants.layers import LADDER
from tests.mutants.mutant import Mutant, mutated_copy


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ladder; 0 when each mutant was caught."""
    options = _parser().parse_args(arguments)
    known = all_mutants()
    unknown = sorted(set(options.only) - set(known))
    if unknown:
        _note(f"no such mutant: {', '.join(unknown)}")
        return 2
    chosen = options.only or (known if options.museum else system_mutants())
    mutants = [known[name] for name in chosen]
    layers = [layer for layer in LADDER if layer.name in (options.layers or layer.name)]
    begun = time.perf_counter()
    with mutated_copy() as root:
        try:
            clean = check_clean(layers, mutants, root, jobs=options.jobs)
        except BrokenLayerError as error:
            _note(str(error))
            return 2
        for name, seconds in clean.items():
            _note(f"clean: {name}, {seconds:.1f} s")
        verdicts: list[Verdict] = []
        for verdict in judge_all(
            layers, mutants, root, jobs=options.jobs, all_layers=options.all_layers
        ):
            verdicts.append(verdict)
            _note(_line(verdict))
    return _report(verdicts, mutants, options, time.perf_counter() - begun)


def _report(
    verdicts: list[Verdict], mutants: Sequence[Mutant], options: argparse.Namespace, seconds: float
) -> int:
    order = [mutant.id for mutant in mutants]
    verdicts.sort(key=lambda verdict: order.index(verdict.mutant))
    caught = sum(bool(verdict.caught_by) for verdict in verdicts)
    if options.write:
        table.write({verdict.mutant: verdict for verdict in verdicts})
    if options.json:
        result = {
            "mutants": len(mutants),
            "caught": caught,
            "seconds": round(seconds, 1),
            "by_layer": table.by_layer(verdicts),
            "verdicts": [attrs.asdict(verdict) for verdict in verdicts],
        }
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
    else:
        sys.stdout.write(f"caught {caught} of {len(mutants)}\n")
    return 0 if caught == len(mutants) else 1


def _note(line: str) -> None:
    """Progress, as it goes; stdout is for the result."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _line(verdict: Verdict) -> str:
    by = ", ".join(verdict.caught_by) or "NOTHING"
    length = "-" if verdict.trace_length is None else str(verdict.trace_length)
    return f"{verdict.mutant:38} {by:22} {length:>4} {verdict.seconds:7.1f} s  {verdict.said}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--layers", nargs="+", choices=[layer.name for layer in LADDER])
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4))
    parser.add_argument("--all-layers", action="store_true", help="ask every layer of each mutant")
    parser.add_argument("--museum", action="store_true", help="the exhibits' bugs as well")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--write", action="store_true", help="write the table in docs/protocol.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
