"""``python -m tests.oracle``: judge any number of random schedules and print the tally."""

import json

import anyio
import click
from rich.progress import Progress

from tests.oracle.runs import Tally, judge_fake_worlds, judge_torch_worlds


@click.command()
@click.option("--schedules", default=200, show_default=True)
@click.option("--first", default=0, show_default=True, help="Seed of the first schedule.")
@click.option("--dtype", default="float64", type=click.Choice(["float64", "float32", "fake"]))
@click.option("--backend", default="asyncio", type=click.Choice(["asyncio", "trio"]))
def main(schedules: int, first: int, dtype: str, backend: str) -> None:
    """Run SCHEDULES random worlds; exit with 1 if a finished turn has a wrong token."""
    seeds = range(first, first + schedules)

    async def run() -> Tally:
        if dtype == "fake":
            return await judge_fake_worlds(seeds)
        with Progress(transient=True) as bar:
            task = bar.add_task("schedules", total=schedules)
            return await judge_torch_worlds(
                seeds, dtype=dtype, progress=lambda seed: bar.advance(task)
            )

    tally = anyio.run(run, backend=backend)
    click.echo(
        json.dumps(
            {
                "dtype": dtype,
                "backend": backend,
                "schedules": tally.schedules,
                "turns": tally.turns,
                "tokens": tally.tokens,
                "differing_tokens": tally.differing,
                "ties": tally.ties,
                "turns_slid": tally.slid,
                "wrong_seeds": sorted(set(tally.wrong_seeds)),
                "events": dict(tally.events),
            }
        )
    )
    if dtype != "float32" and tally.wrong_seeds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
