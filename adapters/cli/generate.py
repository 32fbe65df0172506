"""``tenure generate``: one prompt, streamed, or many at once."""

from collections.abc import Callable
from typing import Any

import anyio
import attrs
import click
from rich.progress import Progress

from adapters.cli.engine_options import config_from, engine_options
from adapters.cli.output import error_console, write_json
from adapters.cli.sampling_options import SAMPLING_NAMES, params_from, sampling_options
from adapters.cli.structured_options import STRUCTURED_NAMES, form_from, structured_options
from kernel import (
    Engine,
    EngineConfig,
    NotFinished,
    RequestOutput,
    SamplingParams,
    TenureError,
)

__all__ = ["generate"]

_ParamsFor = Callable[[SamplingParams | None], SamplingParams]
"""Gives the parameters, once the model's own are known."""


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
@sampling_options
@engine_options
def generate(
    prompts: tuple[str, ...], source: Any, concurrency: int, as_json: bool, **options: Any
) -> None:
    """Continue each PROMPT. A single one is streamed; many run at once, with a progress bar."""
    texts = [*prompts, *_lines(source)]
    if not texts:
        raise click.UsageError("give a PROMPT, or --file")
    form, taken = form_from(options), {*SAMPLING_NAMES, *STRUCTURED_NAMES}
    engine_part = {name: value for name, value in options.items() if name not in taken}
    config = config_from(engine_part, log_events=False)

    def params_for(model: SamplingParams | None) -> SamplingParams:
        return attrs.evolve(params_from(options, model), structured_outputs=form)

    params_for(None)  # what makes no sense is said before a model is loaded
    if len(texts) == 1 and not as_json:
        anyio.run(_stream_one, config, texts[0], params_for)
    else:
        failed = anyio.run(_generate_many, config, texts, params_for, concurrency, as_json)
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


async def _stream_one(config: EngineConfig, prompt: str, params_for: _ParamsFor) -> None:
    async with Engine.open(config) as engine:
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
) -> int:
    """Run all prompts at once and write the results in the order of the prompts.

    A prompt that is refused or fails costs the others nothing.

    Returns:
        How many failed.
    """
    console = error_console()
    results: list[RequestOutput | TenureError] = []
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("generating", total=len(prompts))
        async with Engine.open(config) as engine, anyio.create_task_group() as tasks:
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

            for number in range(len(prompts)):
                tasks.start_soon(complete, number)
    for index, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        _write(index, prompt, result, as_json)
    return sum(isinstance(result, TenureError) for result in results)


def _write(index: int, prompt: str, result: RequestOutput | TenureError, as_json: bool) -> None:
    if isinstance(result, TenureError):
        click.echo(f"[{index}] {type(result).__name__}: {result}", err=True)
        if as_json:
            error = {"type": type(result).__name__, "message": str(result)}
            write_json({"index": index, "prompt": prompt, "error": error})
    elif as_json:
        write_json(
            {
                "index": index,
                "prompt": prompt,
                "text": result.text,
                "token_ids": list(result.token_ids),
                "finish_reason": result.finish_reason,
                "prompt_tokens": result.usage.prompt_tokens,
                "completion_tokens": result.usage.completion_tokens,
            }
        )
    else:
        click.echo(f"[{index}] {prompt}{result.text}")
