"""The pytest plugin: an engine without a model, and a test that leaves a claim behind fails."""

import re
import subprocess
import sys

import pytest

from tests.docs.markdown import ROOT, blocks

pytest_plugins = ["pytester"]

PASSES = """
    import pytest
    from kernel import SamplingParams, StepError

    pytestmark = pytest.mark.anyio
    GREEDY = SamplingParams(temperature=0, max_tokens=3)

    @pytest.mark.tenure(num_slots=2, max_num_seqs=2)
    async def test_a_turn(tenure_engine, tenure_no_leaks):
        assert tenure_engine.core.limits.num_slots == 2
        async with tenure_engine.session() as session:
            async with session.turn("Hello.", GREEDY) as turn:
                assert len((await turn.wait()).token_ids) == 3

    async def test_a_turn_that_is_left_gives_its_claim_back(tenure_engine, tenure_no_leaks):
        async with tenure_engine.stream("Hello.", GREEDY):
            pass

    async def test_a_fault(tenure_engine, tenure_device, tenure_no_leaks):
        tenure_device.fail_next("planted")
        with pytest.raises(StepError, match="planted"):
            await tenure_engine.complete("Hello.", GREEDY)

    async def test_a_step_that_hangs_holds_up_no_end(tenure_engine, tenure_device):
        tenure_device.hang_next()
        async with tenure_engine.stream("Hello.", GREEDY):
            pass
"""

FORGETS = """
    import pytest
    from kernel import SamplingParams

    @pytest.mark.anyio
    async def test_forgets_to_close(tenure_engine, tenure_no_leaks):
        session = await tenure_engine.session(session_id="ada", detached=True).__aenter__()
        async with session.turn("Hello.", SamplingParams(temperature=0, max_tokens=3)) as turn:
            await turn.wait()
"""

FORGOTTEN = """\
1 claim was not given back:
  claim 0 (slot 0, 1 page) is a session's state, with session:ada
    taken for turn req-1 at test_it.py:7 in test_forgets_to_close
      async with session.turn("Hello.", SamplingParams(temperature=0, max_tokens=3)) as turn:
    reserved at kernel/scheduling/admission.py:N in _admit
"""

BARE = """
    import pytest
    from ownership import ZEROS, Capacity, CustodianId, Ledger, Need

    @pytest.fixture
    def port():
        return Ledger(Capacity(slots=4, pages=16, page_size=8)).batch_port(CustodianId("me"))

    def test_keeps_two_of_three(port):
        port.rollback(port.reserve(Need(20), ZEROS, turn="first"))
        second = port.reserve(Need(20), ZEROS, turn="second")
        port.launch([port.reserve(Need(0), ZEROS, turn="third")], step=1)

    def test_gives_all_back(port):
        port.rollback(port.reserve(Need(20), ZEROS, turn="first"))
"""

KEPT = """\
2 claims were not given back:
  claim 1 (slot 0, 3 pages) is a working claim, with me
    taken for turn second at test_it.py:10 in test_keeps_two_of_three
      second = port.reserve(Need(20), ZEROS, turn="second")
  claim 2 (slot 1) is on the device, in lease 0
    taken for turn third at test_it.py:11 in test_keeps_two_of_three
      port.launch([port.reserve(Need(0), ZEROS, turn="third")], step=1)
"""


def report_in(result: pytest.RunResult) -> str:
    """What the plugin wrote; line numbers in the kernel are anybody's."""
    text = result.stdout.str()
    start = re.search(r"^\d+ claims? (was|were) not given back", text, re.MULTILINE)
    assert start is not None, text
    lines = text[start.start() :].split("\n")
    kept = [lines[0]]
    for line in lines[1:]:
        if not line.startswith("  "):
            break
        kept.append(re.sub(r"(kernel/[\w/]+\.py):\d+", r"\1:N", line))
    return "\n".join(kept) + "\n"


@pytest.fixture
def run(pytester: pytest.Pytester) -> "Runner":
    return Runner(pytester)


class Runner:
    """Writes a test file and runs it, with warnings as errors."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def __call__(self, source: str, *arguments: str, ini: str = "") -> pytest.RunResult:
        self.pytester.makepyfile(test_it=source)
        self.pytester.makeini(f"[pytest]\nfilterwarnings = error\n{ini}")
        return self.pytester.runpytest_inprocess("-q", "--strict-markers", *arguments)


def test_an_engine_is_handed_out_on_both_event_loops(run: Runner) -> None:
    """With the options of its marker; faults can be ordered; what has landed by the end is back."""
    result = run(PASSES)

    result.assert_outcomes(passed=8)


def test_a_session_that_stays_open_fails_its_test_and_its_line_is_told(run: Runner) -> None:
    """The line is the user's, not one of the dispatcher's task that reserved it."""
    result = run(FORGETS)

    result.assert_outcomes(failed=2)
    assert report_in(result) == FORGOTTEN


def test_no_line_is_told_where_no_line_of_the_users_was_running(run: Runner) -> None:
    """A task of ``map`` has submitted the turn; the test runner's line would lead astray."""
    result = run(
        """
        import anyio
        import pytest
        from kernel import SamplingParams

        @pytest.mark.anyio
        async def test_a_map(tenure_engine, tenure_device, tenure_no_leaks):
            tenure_device.hang_next()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tenure_engine.map, ["Hello."], SamplingParams(max_tokens=1))
                await anyio.wait_all_tasks_blocked()
                first, second, third = tenure_no_leaks.report().splitlines()[1:]
                tenure_device.unhang()
            assert "on the device" in first
            assert second == "    taken for turn req-1 in a task in which no line of yours runs"
            assert third.startswith("    reserved at kernel/scheduling/admission.py:")
        """
    )

    result.assert_outcomes(passed=2)


def test_what_the_page_shows_is_what_happens(run: Runner) -> None:
    """Its examples are run as a test file, and the report of the last one is the page's."""
    page = (ROOT / "docs" / "pytest-plugin.md").read_text(encoding="utf-8")
    source = "\n".join(block.code for block in blocks(page))
    (shown,) = re.findall(r"^1 claim was not given back:\n(?:  .*\n)+", page, re.MULTILINE)

    result = run(source)

    result.assert_outcomes(passed=4, failed=2)
    assert re.sub(r":\w+ in", " in", report_in(result)) == re.sub(
        r":\w+ in", " in", shown.replace("test_chat", "test_it")
    )


def test_a_whole_suite_can_ask_for_it_and_bare_ledgers_are_watched_too(run: Runner) -> None:
    """Claims by number, oldest first; what was given back is not told."""
    result = run(BARE, ini="tenure_no_leaks = true\n")

    result.assert_outcomes(failed=1, passed=1)
    assert report_in(result) == KEPT


def test_tests_of_unittests_classes_are_watched_too(run: Runner) -> None:
    """A whole suite is all of it; and there too a failure of the test's own comes first."""
    result = run(
        """
        import unittest
        from ownership import ZEROS, Capacity, CustodianId, Ledger, Need

        class TestPort(unittest.TestCase):
            def reserve(self):
                port = Ledger(Capacity(4, 16, 8)).batch_port(CustodianId("me"))
                return port, port.reserve(Need(20), ZEROS, turn="first")

            def test_forgets(self):
                self.reserve()

            def test_fails(self):
                self.reserve()
                self.assertEqual(1, 2)

            def test_gives_back(self):
                port, claim = self.reserve()
                port.rollback(claim)
        """,
        ini="tenure_no_leaks = true\n",
    )

    result.assert_outcomes(failed=2, passed=1)
    told = result.stdout.str()
    assert "test_fails - AssertionError: 1 != 2" in told
    assert "test_forgets - Failed: 1 claim was not given back:" in told


def test_without_the_option_nothing_is_watched(run: Runner) -> None:
    """The same suite, unasked."""
    run(BARE).assert_outcomes(passed=2)


def test_a_test_that_failed_is_not_told_of_leaks_as_well(run: Runner) -> None:
    """What it left behind follows from its failure."""
    result = run(
        """
        from ownership import ZEROS, Capacity, CustodianId, Ledger, Need

        def test_fails_first(tenure_no_leaks):
            port = Ledger(Capacity(4, 16, 8)).batch_port(CustodianId("me"))
            claim = port.reserve(Need(20), ZEROS, turn="first")
            assert "not given back" in tenure_no_leaks.report()
            assert claim is None
        """
    )

    result.assert_outcomes(failed=1)
    assert "claim is None" in result.stdout.str()
    assert "claim was not given back" not in result.stdout.str()


def test_a_tests_own_observer_sees_what_it_would_see_without_the_watch(run: Runner) -> None:
    """From the first event, and it is who ``ledger.observer`` says."""
    result = run(
        """
        from ownership import ZEROS, Capacity, CustodianId, Ledger, Need

        class Recorder:
            def __init__(self):
                self.seen = []

            def record(self, event, fields, /):
                self.seen.append((event, fields["seq"]))

        def test_observers(tenure_no_leaks):
            ledger, recorder = Ledger(Capacity(4, 16, 8)), Recorder()
            assert ledger.observer is None
            ledger.observer = recorder
            assert ledger.observer is recorder
            port = ledger.batch_port(CustodianId("me"))
            port.rollback(port.reserve(Need(20), ZEROS, turn="first"))
            assert recorder.seen == [
                ("ledger.opened", 0), ("claim.reserved", 1), ("claim.rolled_back", 2)
            ]
        """
    )

    result.assert_outcomes(passed=1)


def test_a_lease_of_a_device_that_never_answered_is_no_leak(run: Runner) -> None:
    """Quarantine is where it belongs, as the ledger's own audit says."""
    result = run(
        """
        from ownership import ZEROS, Capacity, CustodianId, Ledger, Need

        def test_quarantine(tenure_no_leaks):
            ledger = Ledger(Capacity(4, 16, 8))
            port = ledger.batch_port(CustodianId("me"))
            lease = port.launch([port.reserve(Need(20), ZEROS, turn="first")], step=1)
            assert tenure_no_leaks.report()
            ledger.quarantine(lease)
        """
    )

    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("options", ["num_slot=2", '{"num_slots": 2}'], ids=["name", "place"])
def test_a_wrong_option_is_told_and_not_passed_over(run: Runner, options: str) -> None:
    """It would else test another engine than the one that was meant."""
    result = run(
        f"""
        import pytest

        @pytest.mark.anyio
        @pytest.mark.tenure({options})
        async def test_it(tenure_engine):
            pass
        """
    )

    result.assert_outcomes(errors=2)
    assert "num_slot" in result.stdout.str()
    if "=" in options:
        assert "did you mean num_slots?" in result.stdout.str()


def test_after_a_watch_the_classes_are_as_they_were(run: Runner) -> None:
    """The next test, and every other suite, runs the code that ships."""
    from kernel.actors.door import Door
    from kernel.engine.core import Core
    from ownership import Ledger

    before = (vars(Ledger)["observer"], Core.__init__, Door.enter)
    run(BARE, ini="tenure_no_leaks = true\n")

    assert before == (vars(Ledger)["observer"], Core.__init__, Door.enter)


def test_a_suite_that_does_not_use_it_loads_no_torch_and_hears_no_warning(
    pytester: pytest.Pytester,
) -> None:
    """It is installed in many environments whose suites have nothing to do with it."""
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            loaded = {"torch", "numpy", "adapters", "kernel.testing.explorer"}
            assert "kernel.testing.plugin" in sys.modules
            assert not loaded & sys.modules.keys()
        """
    )
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout
