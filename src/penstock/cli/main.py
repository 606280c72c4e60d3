"""The command group: a table of names, none of them imported before it is called.

An error comes out as cause and fix, without a traceback unless ``--debug`` is given, and with one
of the exit codes the help names.
"""

import os
import sys
from typing import Final

import click
from click.shell_completion import CompletionItem

from penstock import __version__
from penstock.cli.commands import LazyGroup, entries_of
from penstock.cli.failure import Failure, WrongSetting
from penstock.cli.options import option
from penstock.core.errors import PenstockError

COMMANDS: Final = entries_of("""\
Broker
  serve: Run a broker in the foreground.
  nsqd nsq.programs:nsqd: Run a broker in nsqd's place.
  nsqlookupd nsq.programs:nsqlookupd: Run nsqlookupd alone.
  config: Check, show and explain settings.
  version inspect: Say which build this is.
  audit data.audit: Check a data directory offline.
  repair data.repair: Give up queues that the definitions lost.
  completion: Print a shell's completion script.
Information
  ping inspect: Ask a broker whether it is alive.
  status data.storage: Show how a broker fares.
  top: Show queues, clients, flow and alarms live.
  attention inspect: Show what needs a person.
  flow inspect: Show flow control and the bottleneck.
  overview inspect: Show a broker's totals.
  queues lists: List queues.
  exchanges lists: List exchanges.
  bindings lists: List bindings.
  connections lists: List connections.
  channels lists: List channels.
  consumers lists: List consumers.
  vhosts lists: List virtual hosts.
  users lists: List users.
  permissions lists: List permissions.
  policies lists: List policies.
Definitions
  queue queue.one: Work on one queue.
  exchange admin.entities: Make or delete an exchange.
  bind admin.entities: Bind a queue to an exchange.
  unbind admin.entities: Take a binding away.
  vhost admin.entities: Make or delete a virtual host.
  definitions admin.definitions: Export and import everything declared.
Administration
  user admin.people: Add and change users.
  policy admin.people: Set and take away policies.
  cluster admin.cluster: Inspect a cluster, spread masters, refound it.
  trail admin.maintenance: Show who did what: the audit trail.
  drain admin.maintenance: Let no new clients in.
  revive admin.maintenance: Let clients in again.
  backup admin.maintenance: Copy the data directory of a node that runs.
  migrate data.migrate: Move from another broker, and back.
  set-vm-memory-high-watermark admin.maintenance: Set how much memory a broker may use.
  set-disk-free-limit admin.maintenance: Set how much disk is to stay free.
  close-connection admin.maintenance: Close a client's connection.
Messages
  publish messages: Publish one message.
  get messages: Get messages of a queue.
  route messages: Show where a message would go, and what holds it up.
  trace-on admin.maintenance: Copy all messages to amq.rabbitmq.trace.
  trace-off admin.maintenance: End what trace-on began.
  bench: Drive any AMQP broker and measure it.
  pipeline pipelines.group: Run pipelines on Spark.
""")
ALIASES: Final[dict[str, str]] = {
    "list-queues": "queues",
    "list-exchanges": "exchanges",
    "list-connections": "connections",
    "set_vm_memory_high_watermark": "set-vm-memory-high-watermark",
    "set_disk_free_limit": "set-disk-free-limit",
    "trace_on": "trace-on",
    "trace_off": "trace-off",
}
"""Of these, the names with underscores are rabbitmqctl's."""

EPILOG: Final = """\b
Exit codes:
  0   done
  1   failed: the line 'error:' says why, the line 'fix:' what to do
  2   wrong usage or a wrong setting
  69  no broker answers at that address

\b
Examples:
  penstock serve --data-dir ./data
  penstock queues -o json
"""


class Commands(LazyGroup):
    """Those of ``COMMANDS``; whatever they raise leaves as cause and fix."""

    package = "penstock.cli"
    entries = COMMANDS
    aliases = ALIASES

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and name not in ALIASES and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
            advice = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}.{advice}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: importing every command to complete one would be slow."""
        found = [
            CompletionItem(name, help=entry.help)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; whatever it raises leaves as cause and fix."""
        debug = bool(ctx.params.get("debug"))
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.UsageError, BrokenPipeError):
            raise
        except Exception as error:
            if debug:
                import traceback

                traceback.print_exc()
            raise _as_failure(error) from error


def _as_failure(error: Exception) -> click.ClickException:
    if isinstance(error, click.ClickException):
        return error
    if isinstance(error, PenstockError):
        return Failure(str(error))
    return Failure(
        f"{type(error).__name__}: {error}",
        "this is a fault of penstock; run it again with --debug after 'penstock' and report it",
    )


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="penstock")
@option("--debug", "Show the traceback of an error.", is_flag=True)
def cli(debug: bool) -> None:  # noqa: ARG001 - Commands.invoke reads it
    """A message broker that speaks AMQP 0-9-1 and NSQ, with Spark as its data pipeline."""
    if os.environ.get("PENSTOCK_REQUIRE_COMPILED") == "1":
        _require_compiled()


def _require_compiled() -> None:
    from penstock.core import message

    if str(message.__file__).endswith(".py"):
        raise WrongSetting(
            "PENSTOCK_REQUIRE_COMPILED=1, but the interpreted files would run",
            "build with a C compiler (`make setup`), and do not set PENSTOCK_PURE",
        )


def main() -> None:
    sys.exit(cli.main(prog_name="penstock"))


if __name__ == "__main__":
    main()
