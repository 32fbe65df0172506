"""The tree of errors: what is caught by what, what the messages say, and that errors travel."""

import copy
import pickle

import pytest

from kernel import errors
from kernel.errors import (
    CheckpointNotFound,
    ClientError,
    DeviceLost,
    EngineClosed,
    EngineFault,
    ModelError,
    NotEnoughMemory,
    NotFinished,
    NotSubmitted,
    Overloaded,
    PromptTooLong,
    QueueFull,
    QueueTimeout,
    RequestAborted,
    RequestExists,
    RequestTimeout,
    SamplingError,
    ServerError,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionFileError,
    SessionLost,
    SessionNotFound,
    SessionStoreError,
    StallTimeout,
    StepError,
    StoreError,
    TenureError,
    TooLate,
    TooManySessions,
    TurnNotFound,
    TurnTimeout,
    ValidationError,
    WrongContext,
)

EXAMPLES: list[tuple[TenureError, type[TenureError], str]] = [
    (ValidationError(parameter="top_p", value=2, why="at most 1"), ClientError, "top_p=2"),
    (
        PromptTooLong(prompt_tokens=90, max_tokens=20, limit=100, limit_name="max_model_len"),
        ClientError,
        "max_model_len",
    ),
    (SessionNotFound(session_id="s"), ClientError, "engine.session()"),
    (SessionExists(session_id="s"), ClientError, "engine.attach()"),
    (SessionExists(session_id="s", is_dormant=True), ClientError, "in the session store already"),
    (SessionBusy(session_id="s", turn_id="t4"), ClientError, "wait=True"),
    (SessionBusy(session_id="s", turn_id="t4", can_wait=False), ClientError, "await or cancel it"),
    (CheckpointNotFound(session_id="s", name="draft"), ClientError, "'draft'"),
    (SessionClosed(session_id="s"), ClientError, "open a new one"),
    (StoreError(session_id="s", reason="full", why="no space"), ServerError, "submit it again"),
    (TurnNotFound(session_id="s", turn_id="t4"), ClientError, "turn t4"),
    (TurnNotFound(session_id="s", turn_id=None), ClientError, "last finished turn"),
    (TooLate(session_id="s", turn_id="t4", why="it was closed"), ClientError, "before the next"),
    (NotFinished(request_id="r"), ClientError, "await wait()"),
    (NotFinished(request_id="r", why="it was aborted"), ClientError, "result: it was aborted"),
    (NotSubmitted(request_id="r"), NotFinished, "async with"),
    (RequestExists(request_id="r"), ClientError, "another request_id"),
    (SamplingError(request_id="r", why="no token is left"), ClientError, "change its parameters"),
    (WrongContext(where="event loop"), ClientError, "in each event loop"),
    (WrongContext(where="thread"), ClientError, "blocking door"),
    (WrongContext(where="process"), ClientError, "after the fork"),
    (EngineClosed(), ClientError, "open a new one"),
    (ModelError("no config.json in ./x"), ClientError, "config.json"),
    (NotEnoughMemory(needed_bytes=9, available_bytes=8, why="9 B, 8 B free"), ClientError, "8 B"),
    (
        SessionFileError(source="a.session", reason="damaged", why="use another copy"),
        ClientError,
        "a.session: use another copy",
    ),
    (
        SessionStoreError(path="./d", reason="in_use", why="close that engine"),
        ClientError,
        "./d: close that engine",
    ),
    (QueueFull(what="requests", queued=8, limit=8), Overloaded, "max_num_queued_reqs"),
    (QueueFull(what="tokens", queued=8, limit=8), Overloaded, "max_num_queued_tokens"),
    (TooManySessions(open_sessions=5, limit=5), Overloaded, "max_sessions"),
    (EngineFault(actor="scheduler", why="KeyError"), ServerError, "submit the request again"),
    (StepError(step=7, why="out of memory"), ServerError, "rolled back"),
    (DeviceLost(why="no answer"), ServerError, "open a new one"),
    (SessionLost(session_id="s", why="KeyError"), ServerError, "open a new one"),
    (QueueTimeout(request_id="r", limit_s=0.5), RequestTimeout, "queue_timeout_s=0.5"),
    (TurnTimeout(request_id="r", limit_s=2), RequestTimeout, "raise timeout_s"),
    (StallTimeout(request_id="r", limit_s=30), RequestTimeout, "read its deltas sooner"),
    (RequestAborted(request_id="r"), TenureError, "engine.abort"),
]


@pytest.mark.parametrize(("error", "kind", "says"), EXAMPLES, ids=lambda x: type(x).__name__)
def test_message_says_what_to_do_and_the_family_catches_it(
    error: TenureError, kind: type[TenureError], says: str
) -> None:
    """A caller handles families; a human reads the message."""
    assert isinstance(error, kind)
    assert says in str(error)


@pytest.mark.parametrize(("error", "kind", "says"), EXAMPLES, ids=lambda x: type(x).__name__)
def test_pickle_and_copy_keep_message_and_fields(
    error: TenureError, kind: type[TenureError], says: str
) -> None:
    """Errors cross process pools; keyword constructors would break the default reduction."""
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_examples_cover_every_error_but_the_families() -> None:
    """A new error without an example here would go untested."""
    families = {TenureError, ClientError, Overloaded, ServerError, RequestTimeout}
    exported = {getattr(errors, name) for name in errors.__all__}

    assert exported == families | {type(error) for error, _, _ in EXAMPLES}


def test_validation_error_is_a_value_error_with_fields() -> None:
    """Code that knows nothing of Tenure catches ValueError."""
    error = ValidationError(parameter="top_k", value=-7, why="no")

    assert isinstance(error, ValueError)
    assert (error.parameter, error.value) == ("top_k", -7)


def test_validation_message_does_not_carry_a_long_value() -> None:
    """A prompt may be the refused value; messages end up in logs."""
    assert len(str(ValidationError(parameter="prompt", value="secret" * 500, why="no"))) < 100


def test_prompt_too_long_carries_its_numbers() -> None:
    """The caller shortens by arithmetic, not by parsing a message."""
    error = PromptTooLong(prompt_tokens=90, max_tokens=None, limit=90, limit_name="num_pages")

    assert (error.prompt_tokens, error.max_tokens, error.limit) == (90, None, 90)
    assert "with 1 to generate" in str(error)
