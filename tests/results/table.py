"""The long runs, and what each of them measures.

``is_expected`` is the switch of a run: with it off, a missing or old result is nobody's fault.
"""

from tests.mutants.catalogue import system_mutants
from tests.results.run import Run

__all__ = ["RUNS"]

CORE = ("ownership/*.py", "kernel/**/*.py", "!kernel/testing/**/*.py")
FAKE_DEVICE = ("adapters/fake_device/*.py",)
TESTING = ("kernel/testing/device.py", "kernel/testing/invariants.py")
EXPLORER = (*TESTING, "kernel/testing/explorer/**/*.py")
NOT_EXPLORED = (
    # It drives a core without the public door, an event loop or text.
    "!kernel/engine/blocking.py",
    "!kernel/engine/blocking_turn.py",
    "!kernel/engine/desk.py",
    "!kernel/requests/detokenizer.py",
    "!kernel/engine/engine.py",
    "!kernel/engine/context.py",
    "!kernel/requests/foreign_params.py",
    "!kernel/engine/generation.py",
    "!kernel/engine/request.py",
    "!kernel/requests/options.py",
    "!kernel/engine/shell.py",
    "!kernel/engine/streaming_session.py",
)
SIMULATION = (*TESTING, "kernel/testing/simulation/**/*.py")
LINT = ("ownership/lint/**/*.py",)
TORCH_DEVICE = (
    *("adapters/torch_device/**/*.py", "adapters/models/*.py", "adapters/models/families/*.py"),
    *("adapters/layers/*.py", "adapters/ragged/*.py"),
)
STAGES = (
    *("tests/kernel/loopless.py", "tests/kernel/pool.py", "tests/kernel/toys.py"),
    *("tests/kernel/turns.py", "tests/ownership/support.py", "tests/scenarios/*.py"),
    "tests/oracle/tiny_model.py",
)
"""What the scenarios of the museum stand on."""
SOURCES = ("ownership/**/*.py", "kernel/**/*.py", "adapters/**/*.py")

RUNS = (
    Run(
        name="explore",
        # Each large world up to so many states; `make explore` goes further.
        command="python -m kernel.testing explore --world all --max-states 5000 --jobs 2 --json",
        measures=(*CORE, *EXPLORER, *FAKE_DEVICE, *NOT_EXPLORED),
        conditions=("failed == 0",),
        is_expected=True,
    ),
    Run(
        name="simulate",
        command="python -m kernel.testing simulate --seeds 1..20000 --jobs 2 --json",
        measures=(*CORE, *SIMULATION, *FAKE_DEVICE),
        conditions=("seeds >= 20000", "failed == 0", "unseen == 0"),
        is_expected=True,
    ),
    Run(
        # Not expected at each change since there are twice as many: the whole ladder takes half an
        # hour. tests/mutants/test_catalogue.py holds that each still applies.
        name="mutants",
        command="python -m tests.mutants --write --json",
        # The files that bugs are planted in, and the catalogue with its ladder.
        measures=(
            *sorted({mutant.path for mutant in system_mutants().values()}),
            "tests/mutants/**/*.py",
        ),
        conditions=("mutants >= 40", "caught == mutants"),
        is_expected=False,
    ),
    Run(
        # Not expected at each change: a quarter of an hour of both cores.
        name="mutation",
        command="python -m tests.mutants.general --jobs 2 --json",
        # Of the planted bugs' own tools it uses these alone.
        measures=(
            *("ownership/*.py", "tests/ownership/**/*.py", "tests/mutants/mutant.py"),
            *("tests/mutants/general.py", "tests/mutants/changes.py", "tests/mutants/forked.py"),
        ),
        conditions=(),
        is_expected=False,
    ),
    Run(
        name="museum",
        command="python -m tests.museum --check --json",
        measures=(
            *(*CORE, *FAKE_DEVICE, *TORCH_DEVICE, *STAGES),
            # The bugs that are planted, and the programs that stand in for some.
            *("tests/museum/*.py", "tests/mutants/mutant.py", "tests/mutants/catalogue/*.py"),
            "tests/types/*.py",
        ),
        conditions=("total >= 147", "failed == 0", "not_applicable <= 25", "caught == checked"),
        is_expected=True,
    ),
    Run(
        name="lint-recall",
        command="python -m tests.lint.recall --seeds 200 --json",
        # The faults are planted into the sources, so what is found is a figure of them as well.
        measures=(*SOURCES, "tests/lint/*.py"),
        conditions=("injected >= 200", "recall >= 0.95"),
        is_expected=True,
    ),
    Run(
        name="lint-corpus",
        command="python -m tests.lint.corpus --json",
        measures=(*LINT, "tests/lint/corpus/**/*"),
        conditions=("findings >= 1", "unclassified == 0", "false_share <= 0.05"),
        is_expected=True,
    ),
    Run(
        name="lint-speed",
        command="python -m tests.lint.speed --json",
        measures=(*LINT, "tests/lint/speed.py"),
        conditions=(
            "unmarked.lines_per_second >= 30000",
            "unmarked.findings == 0",
            "repository.lines_per_second >= 8000",
            "repository.findings == 0",
        ),
        is_expected=True,
    ),
    Run(
        name="trace-edits",
        command="python -m tests.adapters.trace_edits --edits 20000 --logs 200 --json",
        # The logs are those of real runs: what is written, and what is made of it.
        measures=(
            "adapters/trace_audit/*.py",
            "ownership/events.py",
            "kernel/probe.py",
            "tests/adapters/trace_*.py",
        ),
        conditions=("edits >= 20000", "named == edits"),
        is_expected=True,
    ),
    Run(
        name="trace-view",
        command="python -m tests.adapters.trace_browser --json",
        measures=(
            "adapters/trace_view/*",
            "adapters/trace_audit/*.py",
            "tests/adapters/trace_*.py",
        ),
        conditions=("failed == 0", "checks >= 10000", "long_events >= 90000"),
        is_expected=True,
    ),
    Run(
        # Not expected: it needs an idle machine, and docs/performance.md has its figures.
        name="bench-core",
        command="tenure bench core --json",
        measures=(*CORE, "adapters/cli/bench/*.py"),
        conditions=("ledger_ns <= 1500",),
        is_expected=False,
    ),
    Run(
        # Not expected, as bench-core: it needs an idle machine for a quarter of an hour.
        name="bench-sessions",
        command="tenure bench sessions --json",
        measures=(
            *(*CORE, *FAKE_DEVICE),
            *("adapters/session_store/*.py", "adapters/cli/bench/*.py"),
        ),
        conditions=(
            *("sessions >= 100000", "lost == 0", "start_s <= 5"),
            *("bytes_each.host_after_turns <= 2048", "turn_spread <= 0.2"),
        ),
        is_expected=False,
    ),
    Run(
        # Not expected at each change: eight minutes, of which most is starting processes.
        name="kills",
        command="python -m tests.durable.kills --count 2000",
        measures=(*CORE, *FAKE_DEVICE, "adapters/session_store/*.py", "tests/durable/kill*.py"),
        conditions=("kills >= 2000", "wrong == 0"),
        is_expected=False,
    ),
    Run(
        name="kills-bundled",
        command="python -m tests.durable.kills --count 100 --model bundled --most-s 6",
        measures=(*CORE, *TORCH_DEVICE, "adapters/session_store/*.py", "tests/durable/kill*.py"),
        conditions=("kills >= 100", "wrong == 0"),
        is_expected=False,
    ),
    Run(
        name="oracle",
        command="python -m tests.oracle --schedules 200",
        measures=(
            *CORE,
            *TORCH_DEVICE,
            "tests/oracle/*.py",
        ),
        conditions=("schedules >= 200", "differing_tokens == 0"),
        is_expected=True,
    ),
    Run(
        name="parity",
        command="python -m tests.parity --json --write",
        measures=(
            *TORCH_DEVICE,
            *("tests/parity/**/*.py", "tests/oracle/world.py", "tests/torch_device/support.py"),
        ),
        conditions=(
            *("families >= 16", "shapes >= 51", "float64 <= 1e-9", "float32 <= 1e-4"),
            *("bfloat16 <= 0.2", "float16 <= 0.02"),
            *("bfloat16_median <= 0.05", "float16_median <= 0.005"),
            *("tokens >= 10000", "differing_tokens == 0", "faults == 0"),
        ),
        is_expected=True,
    ),
)
