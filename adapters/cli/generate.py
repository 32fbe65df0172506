"""``tenure generate``: one prompt, streamed, or many at once."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import click
from rich.progress import Progress

from adapters.cli.engine_options import config_from, engine_options
from adapters.cli.event_log import event_log, log_option
from adapters.cli.load_bar import load_bar
from adapters.cli.output import error_console, write_json
from adapters.cli.sampling_options import (
    LOGPROB_NAMES,
    SAMPLING_NAMES,
    logprob_options,
    params_from,
    sampling_options,
)
from adapters.cli.structured_options import STRUCTURED_NAMES, form_from, structured_options
from kernel import (
    Engine,
    EngineConfig,
    NotFinished,
    RequestOutput,
    SamplingParams,
    TenureError,
    TokenLogprobs,
)

__all__ = ["generate"]

_ParamsFor = Callable[[SamplingParams | None], SamplingParams]
"""Gives the parameters, once the model's own are known."""
_Opening = Callable[[EngineConfig], AbstractAsyncContextManager[Engine]]


@click.command()
@click.argument("prompts", nargs=-1, metavar="PROMPT...")
@click.option(
    "--file",
    "-f",
    "source",
    type=click.File(encoding="utf-8"),
    help="More prompts, one a line; - is standard input.",
)
@click.option("--concurrency", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a prompt.")
@structured_options
@logprob_options
@sampling_options
@log_option
@engine_options
def generate(
    prompts: tuple[str, ...],
    source: Any,
    concurrency: int,
    as_json: bool,
    log: Path | None,
    **options: Any,
) -> None:
    """Continue each PROMPT. A single one is streamed; many run at once, with a progress bar."""
    texts = [*prompts, *_lines(source)]
    if not texts:
        raise click.UsageError("give a PROMPT, or --file")
    if not as_json and any(options[name] is not None for name in LOGPROB_NAMES):
        raise click.UsageError("--logprobs and --prompt-logprobs are printed with --json")
    form, taken = form_from(options), {*SAMPLING_NAMES, *LOGPROB_NAMES, *STRUCTURED_NAMES}
    engine_part = {name: value for name, value in options.items() if name not in taken}
    config = config_from(engine_part, log_events=False)

    def params_for(model: SamplingParams | None) -> SamplingParams:
        return attrs.evolve(params_from(options, model), structured_outputs=form)

    params_for(None)  # what makes no sense is said before a model is loaded
    with event_log(log) as logger, load_bar(options["progress"]) as told:
        opening = partial(Engine.open, progress=told, logger=logger)
        if len(texts) == 1 and not as_json:
            anyio.run(_stream_one, config, texts[0], params_for, opening)
            return
        failed = anyio.run(_generate_many, config, texts, params_for, concurrency, as_json, opening)
    if failed:
        raise click.exceptions.Exit(1)


def _lines(source: Any) -> list[str]:
    """The prompts of a file, empty lines left out."""
    if source is None:
        return []
    try:
        return [line.rstrip("\n") for line in source if line.strip()]
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{source.name} isn't UTF-8 text: {error}") from error


async def _stream_one(
    config: EngineConfig, prompt: str, params_for: _ParamsFor, opening: _Opening
) -> None:
    config = attrs.evolve(config, max_num_seqs=1, max_sessions=1)  # no room for more
    async with opening(config) as engine:
        params = params_for(engine.core.model.default_params)
        async with engine.stream(prompt, params) as out:
            click.echo(prompt, nl=False)
            async for delta in out:
                click.echo(delta.text, nl=False)
            click.echo()


async def _generate_many(
    config: EngineConfig,
    prompts: list[str],
    params_for: _ParamsFor,
    concurrency: int,
    as_json: bool,
    opening: _Opening,
) -> int:
    """Run all prompts at once and write the results in the order of the prompts.

    A prompt that is refused or fails costs the others nothing.

    Returns:
        How many failed.
    """
    console = error_console()
    results: list[RequestOutput | TenureError] = []
    async with opening(config) as engine:
        # Begun when the bar of the loading is gone: a terminal has room for one.
        with Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("generating", total=len(prompts))
            limiter = anyio.CapacityLimiter(min(concurrency, config.max_num_queued_reqs))
            params = params_for(engine.core.model.default_params)
            results = [NotFinished(request_id=str(number)) for number in range(len(prompts))]

            async def complete(number: int) -> None:
                async with limiter:
                    try:
                        results[number] = await engine.complete(prompts[number], params)
                    except TenureError as error:
                        results[number] = error
                progress.advance(task)

            async with anyio.create_task_group() as tasks:
                for number in range(len(prompts)):
                    tasks.start_soon(complete, number)
    for index, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        _write(index, prompt, result, as_json)
    return sum(isinstance(result, TenureError) for result in results)


def _told(logprobs: TokenLogprobs | None) -> dict[str, dict[str, object]] | None:
    """One position: by token id, the likeliest first."""
    if logprobs is None:
        return None
    return {str(token): attrs.asdict(told) for token, told in logprobs.items()}


def _write(index: int, prompt: str, result: RequestOutput | TenureError, as_json: bool) -> None:
    if isinstance(result, TenureError):
        click.echo(f"[{index}] {type(result).__name__}: {result}", err=True)
        if as_json:
            error = {"type": type(result).__name__, "message": str(result)}
            write_json({"index": index, "prompt": prompt, "error": error})
    elif as_json:
        record: dict[str, object] = {
            "index": index,
            "prompt": prompt,
            "text": result.text,
            "token_ids": list(result.token_ids),
            "finish_reason": result.finish_reason,
            "prompt_tokens": result.usage.prompt_tokens,
            "completion_tokens": result.usage.completion_tokens,
        }
        if result.outputs[0].logprobs is not None:
            record["logprobs"] = list(map(_told, result.outputs[0].logprobs))
        if result.prompt_logprobs is not None:
            record["prompt_token_ids"] = list(result.prompt_token_ids)
            record["prompt_logprobs"] = list(map(_told, result.prompt_logprobs))
        write_json(record)
    else:
        click.echo(f"[{index}] {prompt}{result.text}")
