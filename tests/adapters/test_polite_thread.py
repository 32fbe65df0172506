"""A thread that ends with the interpreter, in good order or cut off, and tells what went wrong."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable

import pytest

from adapters.polite_thread import PoliteThread, tell_fault

WAIT_S = 5.0


class Work:
    """Waits until it is told to end."""

    def __init__(self) -> None:
        self.told = threading.Event()

    def __call__(self) -> None:
        self.told.wait(WAIT_S)

    def stop(self) -> None:
        self.told.set()


def ends_with(script: str) -> str:
    """What a process writes that ends right after the script; an error of it fails the test."""
    before = "import os, sys, threading, time\nfrom adapters.polite_thread import *\n"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", before + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=15,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_it_is_a_daemon_of_that_name_and_join_says_whether_it_has_ended() -> None:
    """So that what hangs can't keep the process."""
    work = Work()
    thread = PoliteThread(work, name="polite", stop=work.stop)

    assert [each.daemon for each in threading.enumerate() if each.name == "polite"] == [True]
    assert not thread.join(0.01)
    work.stop()
    assert thread.join(WAIT_S)
    assert thread.join(0.0)


def test_a_thread_that_has_ended_keeps_nothing_alive() -> None:
    """The hook at exit goes with it: an engine that was closed is no memory of the process."""
    work = Work()
    thread = PoliteThread(work, name="polite", stop=work.stop)
    work.stop()
    assert thread.join(WAIT_S)

    kept = weakref.ref(work)
    del thread, work
    gc.collect()
    assert kept() is None


def test_at_exit_it_is_asked_to_end_and_given_the_time() -> None:
    """What it was in the middle of is done, also when nobody has stopped it."""
    said = ends_with(
        """
        told = threading.Event()

        def work():
            told.wait()
            time.sleep(0.1)
            os.write(1, b"whole")

        PoliteThread(work, name="polite", stop=told.set)
        """
    )

    assert said == "whole"


def test_one_that_hangs_keeps_the_process_a_few_seconds_and_no_longer() -> None:
    """The time is the module's to say; here it is short."""
    said = ends_with(
        """
        import adapters.polite_thread as module
        module.EXIT_S = 0.05
        PoliteThread(threading.Event().wait, name="polite", stop=lambda: print("asked"))
        """
    )

    assert said == "asked\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_that_was_forked_has_no_thread_to_wait_for() -> None:
    """The lock that it had when the process was copied is held there for ever."""
    said = ends_with(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        lock, told = threading.Lock(), threading.Event()

        def work():
            with lock:
                told.wait()

        def stop():
            if os.getpid() != parent:
                lock.acquire(timeout=10)
                os.write(1, b"waited ")
            told.set()

        parent = os.getpid()
        PoliteThread(work, name="polite", stop=stop)
        while not lock.locked():
            time.sleep(0.001)
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            os.write(1, b"parent")
        """
    )

    assert said == "parent"


def fail(told: list[BaseException]) -> None:
    try:
        raise KeyError("the caller's mistake")
    except KeyError as error:
        told.append(error)
        tell_fault()


def test_a_fault_goes_where_a_threads_unhandled_errors_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its trace and the thread that it was in."""
    told = list[threading.ExceptHookArgs]()
    monkeypatch.setattr(threading, "excepthook", told.append)
    raised = list[BaseException]()
    thread = PoliteThread(lambda: fail(raised), name="polite", stop=lambda: None)
    assert thread.join(WAIT_S)
    tell_fault()  # nothing is being handled

    (args,) = told
    assert args.exc_value is raised[0]
    assert args.exc_type is KeyError
    assert args.exc_traceback is raised[0].__traceback__
    assert args.thread is not None
    assert args.thread.name == "polite"


def refuse(_args: threading.ExceptHookArgs) -> None:
    raise OSError("the log is gone")


def leave(_args: threading.ExceptHookArgs) -> None:
    raise SystemExit


@pytest.mark.parametrize("hook", [refuse, leave])
def test_an_applications_hook_that_fails_costs_the_thread_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hook: Callable[[threading.ExceptHookArgs], None],
) -> None:
    """Both errors are on standard error."""
    monkeypatch.setattr(threading, "excepthook", hook)
    fail([])

    said = capsys.readouterr().err
    assert "the caller's mistake" in said
    assert hook.__name__ in said
