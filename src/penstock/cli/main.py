"""The command group: a table of names, none of them imported before it is called.

``penstock --help`` prints from the table alone; a test holds each sentence against the
command's own help.  An error comes out as cause and fix, without a traceback unless
``--debug`` is given, and with one of the exit codes the help names.
"""

import os
import sys
from importlib import import_module
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from penstock import __version__
from penstock.cli.failure import Failure, WrongSetting
from penstock.core.errors import PenstockError


class Entry(NamedTuple):
    """Where a command lives and the one line the list of commands shows."""

    target: str
    section: str
    help: str


COMMANDS: Final[dict[str, Entry]] = {
    "serve": Entry("penstock.cli.serve:serve", "Broker", "Run a broker in the foreground."),
    "config": Entry("penstock.cli.config:config", "Broker", "Check, show and explain settings."),
    "version": Entry("penstock.cli.inspect:version", "Broker", "Say which build this is."),
    "audit": Entry("penstock.cli.audit:audit", "Broker", "Check a data directory offline."),
    "repair": Entry(
        "penstock.cli.repair:repair", "Broker", "Give up queues that the definitions lost."
    ),
    "completion": Entry(
        "penstock.cli.completion:completion", "Broker", "Print a shell's completion script."
    ),
    "ping": Entry("penstock.cli.inspect:ping", "Information", "Ask a broker whether it is alive."),
    "status": Entry("penstock.cli.storage:status", "Information", "Show how a broker fares."),
    "flow": Entry("penstock.cli.flow:flow", "Information", "Show flow control and the bottleneck."),
    "overview": Entry("penstock.cli.inspect:overview", "Information", "Show a broker's totals."),
    "queues": Entry("penstock.cli.lists:queues", "Information", "List queues."),
    "exchanges": Entry("penstock.cli.lists:exchanges", "Information", "List exchanges."),
    "bindings": Entry("penstock.cli.lists:bindings", "Information", "List bindings."),
    "connections": Entry("penstock.cli.lists:connections", "Information", "List connections."),
    "channels": Entry("penstock.cli.lists:channels", "Information", "List channels."),
    "consumers": Entry("penstock.cli.lists:consumers", "Information", "List consumers."),
    "vhosts": Entry("penstock.cli.lists:vhosts", "Information", "List virtual hosts."),
    "users": Entry("penstock.cli.lists:users", "Information", "List users."),
    "permissions": Entry("penstock.cli.lists:permissions", "Information", "List permissions."),
    "policies": Entry("penstock.cli.lists:policies", "Information", "List policies."),
    "queue": Entry("penstock.cli.queue.one:queue", "Definitions", "Work on one queue."),
    "exchange": Entry(
        "penstock.cli.entities:exchange", "Definitions", "Make or delete an exchange."
    ),
    "bind": Entry("penstock.cli.entities:bind", "Definitions", "Bind a queue to an exchange."),
    "unbind": Entry("penstock.cli.entities:unbind", "Definitions", "Take a binding away."),
    "vhost": Entry("penstock.cli.entities:vhost", "Definitions", "Make or delete a virtual host."),
    "definitions": Entry(
        "penstock.cli.definitions:definitions",
        "Definitions",
        "Export and import everything declared.",
    ),
    "user": Entry("penstock.cli.people:user", "Administration", "Add and change users."),
    "policy": Entry("penstock.cli.people:policy", "Administration", "Set and take away policies."),
    "cluster": Entry(
        "penstock.cli.cluster:cluster",
        "Administration",
        "Inspect a cluster, spread masters, refound it.",
    ),
    "drain": Entry("penstock.cli.maintenance:drain", "Administration", "Let no new clients in."),
    "revive": Entry("penstock.cli.maintenance:revive", "Administration", "Let clients in again."),
    "migrate": Entry(
        "penstock.cli.migrate:migrate", "Administration", "Move from another broker, and back."
    ),
    "set-vm-memory-high-watermark": Entry(
        "penstock.cli.resources:set_vm_memory_high_watermark",
        "Administration",
        "Set how much memory a broker may use.",
    ),
    "set-disk-free-limit": Entry(
        "penstock.cli.resources:set_disk_free_limit",
        "Administration",
        "Set how much disk is to stay free.",
    ),
    "close-connection": Entry(
        "penstock.cli.close_connection:close_connection",
        "Administration",
        "Close a client's connection.",
    ),
    "publish": Entry("penstock.cli.messages:publish", "Messages", "Publish one message."),
    "get": Entry("penstock.cli.messages:get", "Messages", "Get messages of a queue."),
    "trace-on": Entry(
        "penstock.cli.tracing:trace_on", "Messages", "Copy all messages to amq.rabbitmq.trace."
    ),
    "trace-off": Entry("penstock.cli.tracing:trace_off", "Messages", "End what trace-on began."),
    "bench": Entry("penstock.cli.bench:bench", "Messages", "Drive any AMQP broker and measure it."),
    "pipeline": Entry(
        "penstock.cli.pipelines.group:pipeline", "Messages", "Run pipelines on Spark."
    ),
}
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


class LazyGroup(click.Group):
    """Commands by name from ``COMMANDS``, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(ALIASES.get(cmd_name, cmd_name))
        if entry is None:
            return None
        module_name, attribute = entry.target.split(":")
        command = getattr(import_module(module_name), attribute)
        assert isinstance(command, click.Command)
        return command

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in COMMANDS.items():
            sections.setdefault(entry.section, []).append((name, entry.help))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)

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
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="penstock")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:  # noqa: ARG001 - LazyGroup.invoke reads it
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
    """The console script."""
    sys.exit(cli.main(prog_name="penstock"))


if __name__ == "__main__":
    main()
