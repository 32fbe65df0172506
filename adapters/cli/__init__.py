"""The ``tenure`` command, one module a subcommand."""

import click

from adapters.cli.bench import bench
from adapters.cli.chat import chat
from adapters.cli.demo import demo
from adapters.cli.generate import generate
from adapters.cli.info import info
from adapters.cli.output import ErrorsAsMessages
from adapters.cli.plan import plan
from adapters.cli.sessions import sessions
from adapters.cli.trace import trace

__all__ = ["main"]


@click.group(cls=ErrorsAsMessages, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tenure")
def main() -> None:
    """Streaming sessions on recurrent and hybrid language models, in your own process.

    Every slot has one owner, and the type says who.
    """


for command in (demo, chat, generate, sessions, bench, plan, trace, info):
    main.add_command(command)
