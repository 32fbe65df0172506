"""Many requests at once, for ``Engine.map``: so many under way, and the first failure ends all."""

from collections.abc import Awaitable, Callable, Sequence

import anyio

from kernel.errors import RequestAborted, ValidationError
from kernel.outputs import RequestOutput
from kernel.params import SamplingParams

__all__ = ["complete_many", "params_for"]


async def complete_many(
    complete: Callable[[int], Awaitable[RequestOutput]],
    count: int,
    *,
    concurrency: int,
    on_result: Callable[[int, RequestOutput], None] | None,
) -> list[RequestOutput]:
    """Run requests by their numbers; results in order of numbers. Cancelling cancels them all.

    Args:
        complete: one request, to its end.
        count: of them all.
        concurrency: under way at once.
        on_result: called with (number, result) as each ends.

    Raises:
        Exception: what a request or ``on_result`` raised, as it is and in no group, with a note
            that says which request; of several that failed at once, of the first by its number.
            The others were cancelled.
        RequestAborted: a task of this call was cancelled, and not by its caller.
    """
    results: list[RequestOutput | None] = [None] * count
    failures: dict[int, Exception] = {}
    todo = iter(range(count))

    async def work() -> None:
        for number in todo:
            try:
                results[number] = result = await complete(number)
                if on_result is not None:
                    on_result(number, result)
            except Exception as error:
                failures[number] = error
                tasks.cancel_scope.cancel()
                return

    async with anyio.create_task_group() as tasks:
        for _ in range(min(concurrency, count)):
            tasks.start_soon(work)
    if failures:
        number = min(failures)
        note = f"It is of prompt {number} of the {count} given (0 is the first)."
        try:
            if note not in getattr(failures[number], "__notes__", ()):
                failures[number].add_note(note)  # the end of an engine is one error for all calls
            raise failures[number]
        finally:
            failures.clear()  # its traceback names this frame, which would name it
    found = [result for result in results if result is not None]
    if len(found) < count:
        # Somebody cancelled a worker's own task, which its group takes for a normal end.
        missing = count - len(found)
        raise RequestAborted(
            request_id="map", why=f"{missing} of its {count} requests were cancelled"
        )
    return found


def params_for(
    prompts: Sequence[object], params: SamplingParams | Sequence[SamplingParams] | None
) -> Sequence[SamplingParams | None]:
    """The parameters of each prompt.

    Raises:
        ValidationError: there are neither as many as prompts, nor one for all.
    """
    if params is None or isinstance(params, SamplingParams):
        return [params] * len(prompts)
    if len(params) != len(prompts):
        raise ValidationError(
            parameter="params",
            value=f"{len(params)} of them",
            why=f"there are {len(prompts)} prompts; give one for all, or one for each",
        )
    return params
