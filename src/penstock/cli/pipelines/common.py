"""What every pipeline shares on the command line.

``common_options`` gives a command the flags all pipelines have and hands them over as one
``Common``.  A pipeline's body then reads: ``check_spark(common)``, look at the broker, show a plan
when ``dry_run``, else run inside ``at_work(...)`` (``spark_for(...)`` where it only asks a
question), and end with ``say_summary``: the last line on standard output is JSON, unless it is a
terminal.

    0   done, or stopped by a signal
    1   failed: no Spark or Java, refused by the broker, data lost, disk full
    2   wrong usage
    69  no broker answers at that address
"""

import functools
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.failure import BrokerUnavailable, Failure
from penstock.cli.options import address_option, all_of, option
from penstock.client.local_node import find_control
from penstock.core.errors import PenstockError, ResourceLocked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/%2f"
URL_DEFAULT_WORDS = f"default $PENSTOCK_URL, else the broker of this machine, else {DEFAULT_URL}"
MASTER = re.compile(r"local(\[[^]]+\])?|spark://.+|k8s://.+|yarn")
BAR_WIDTH = 30
SHORT_MESSAGES_MAX = 200_000
"""Up to so many, what Java's optimising compiler gains is less than what it takes."""
REPORT_ENDINGS = (".html", ".json")
CORES_MAX = 8
"""Of one machine, without ``--master``: the broker and others need some, too."""

EXIT_CODES = """\b
Exit codes:
  0   done (or: stopped by a signal)
  1   failed: no Spark or Java, queue missing or in use, data lost, disk full
  2   wrong usage
  69  no broker answers at that address
"""

Command = TypeVar("Command", bound=Callable[..., Any])
take_over_option = option("--take-over", "Take the queue from another pipeline.", is_flag=True)
accept_data_loss_option = option(
    "--accept-data-loss",
    "Go on with what is there when the queue was replaced or read by others.",
    is_flag=True,
)


@dataclass(frozen=True)
class Common:
    url: str
    master: str
    every_s: float | None  # None = do what there is to do now, then end
    checkpoint: Path | None
    group: str | None
    dry_run: bool
    output: str

    @property
    def vhost(self) -> str:
        from pyspark_penstock.endpoints import parse_url

        return parse_url(self.url).vhost

    @property
    def as_text(self) -> bool:
        return self.output == "text"


class _LocalPath(click.ParamType[Path]):
    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from penstock.spark.state.places import KeysInUrl, NotLocal, local_path

        try:
            if not value:
                raise NotLocal("an empty path names no file")
            return local_path(str(value))
        except (NotLocal, KeysInUrl) as error:
            self.fail(str(error), param, ctx)


class _Seconds(click.ParamType[float]):
    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?", value)
        if match is None or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a time such as 30s, 5m or 500ms", param, ctx)
        return float(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2] or "s"]


LOCAL_PATH = _LocalPath()
SECONDS = _Seconds()


def common_options(
    *, stream: bool = True, group: bool = True, spark: bool = True
) -> Callable[[Command], Command]:
    """The shared flags; ``stream`` = those of a query that keeps a place, and may keep running."""
    options = [
        address_option("--url", f"Broker; {URL_DEFAULT_WORDS}", "PENSTOCK_URL"),
        option("--dry-run", "Say what would be done; starts no Spark.", is_flag=True),
        option(
            "-o --output", "json: nothing but the summary.", click.Choice(["text", "json"]), "text"
        ),
    ]
    if spark:
        options.insert(
            1,
            option(
                "--master",
                f"Spark master; default local[N], N the processors, from 2 to {CORES_MAX}.",
                callback=_master,
            ),
        )
    if stream:
        options += [
            option("--once", "Do what is there now, then end (default).", is_flag=True),
            option("--every every_s", "Keep running, a batch each so often.", SECONDS),
            option("--checkpoint", "Directory where it keeps its place.", LOCAL_PATH),
        ]
    if group:
        options.append(
            option(
                "--group", "With --exchange or --stream: the name to read under.", metavar="NAME"
            )
        )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_common(**given: Any) -> Any:
            return command(_common(given), **given)

        decorated: Command = all_of(*options)(with_common)
        return decorated

    return decorate


def broker_url(given: str | None) -> str:
    """``--url``, ``PENSTOCK_URL``, the control file of this machine's broker, the usual port."""
    url = given or os.environ.get("PENSTOCK_URL")
    if url:
        return url
    control = find_control(os.environ)
    if control is None or not control.amqp:
        return DEFAULT_URL
    return f"amqp://guest:guest@{control.amqp}/%2f"


def _common(given: dict[str, Any]) -> Common:
    once, every_s = given.pop("once", False), given.pop("every_s", None)
    if once and every_s is not None:
        raise click.UsageError("--once and --every exclude each other")
    url = broker_url(given.pop("url"))
    return Common(
        url=url,
        master=given.pop("master", ""),
        every_s=every_s,
        checkpoint=given.pop("checkpoint", None),
        group=given.pop("group", None),
        dry_run=given.pop("dry_run"),
        output=given.pop("output"),
    )


# -- parsing -------------------------------------------------------------------------------------


def _master(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    if value is None:
        return default_master()
    if not MASTER.fullmatch(value):
        raise click.BadParameter(
            f"{value!r} is none of local[N], spark://host:port, yarn, k8s://…", ctx, param
        )
    return value


def default_master() -> str:
    return f"local[{min(max(len(os.sched_getaffinity(0)), 2), CORES_MAX)}]"


def check_output(path: Path | None, *endings: str) -> None:
    """The file of ``--out``: in a directory that exists, and with one of the ``endings``."""
    if path is None:
        return
    if endings and path.suffix not in endings:
        raise click.UsageError(f"--out must end in {' or '.join(endings)}")
    if not path.parent.is_dir():
        raise click.UsageError(f"--out: there is no directory {path.parent}")


# -- before, meanwhile, after ----------------------------------------------------------------


def check_spark(common: Common) -> None:
    """Before anything expensive: is Spark here, a Java for it, and a broker's address?"""
    check_spark_at(common.url)


def check_spark_at(url: str) -> None:
    import pyarrow as pa  # noqa: F401 - the group of commands says how to install it

    from penstock.spark.launcher.java import JavaMissing, find_java
    from pyspark_penstock.endpoints import parse_url

    try:
        find_java(os.environ)
    except JavaMissing as error:
        raise Failure(str(error), error.fix) from error
    try:
        parse_url(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def asking_broker() -> Iterator[None]:
    """What the broker says no to, or that it is not there, in a user's words."""
    from penstock.spark.launcher.failures import IN_COMMANDS
    from pyspark_penstock import client
    from pyspark_penstock.planner import cure_of, without_cure

    try:
        yield
    except client.NotPenstock as error:
        raise Failure(
            str(error), "the port in --url must be the AMQP port of a Penstock"
        ) from error
    except client.ConnectionLost as error:
        fix = "start it with 'penstock serve', or name it by --url"
        raise BrokerUnavailable(str(error), fix) from error
    except client.Refused as error:
        text, cure = without_cure(str(error))
        fix = cure.format_map(IN_COMMANDS) or cure_of(error, IN_COMMANDS)
        raise Failure(text, fix) from error


def left_in(url: str, *queues: str) -> int | None:
    """How many messages are left; None when the broker cannot be asked any more."""
    from penstock.spark.dataframes.browsing import look

    with suppress(Failure), asking_broker():
        return sum(look(url, queue).ready for queue in queues)
    return None


@contextmanager
def at_work(
    common: Common, home: Path, total: int | None, checkpoint: Path | None = None
) -> "Iterator[tuple[Teller, threading.Event]]":
    """Around a pipeline that moves messages: says how it goes, and is set by signals that stop it.

    ``home`` has Spark's log; ``total`` messages are to be done, if that is known; ``checkpoint`` as
    for ``failing_well``.
    """
    from penstock.spark.launcher.session import LOG_NAME

    teller = Teller(common.output, total)
    around = surroundings()
    log = home / LOG_NAME if around is None else around.log
    stopped = stop_on_signals() if around is None else nullcontext(around.stopping)
    with failing_well(log, checkpoint), stopped as stopping:
        yield teller, stopping
    teller.end()


@contextmanager
def spark_for(
    name: str, common: Common, home: Path, *, short: bool = True
) -> "Iterator[SparkSession]":
    from penstock.spark.launcher.failures import explained
    from penstock.spark.launcher.session import LOG_NAME, session

    with (
        failing_well(home / LOG_NAME),
        session(f"penstock {name}", common.master, common.url, home, short=short) as spark,
        explained(),
    ):
        yield spark


@contextmanager
def failing_well(log: Path, checkpoint: Path | None = None) -> Iterator[None]:
    """A pipeline's errors; ``log`` is where Spark has written the rest.

    ``checkpoint``: of a pipeline that has ``--accept-data-loss``.
    """
    from penstock.spark.launcher.failures import BrokerUnreachable, DataLost

    try:
        yield
    except BrokerUnreachable as error:
        fix = "start the broker, then run the same command again"
        raise BrokerUnavailable(one_line(str(error)), fix) from error
    except DataLost as error:
        fix = f"--accept-data-loss goes on with what is there; the checkpoint is {checkpoint}"
        raise Failure(one_line(str(error)), fix) from error
    except ResourceLocked as error:
        raise Failure(str(error), "stop that one, or wait for its end") from error
    except PenstockError as error:
        fix = getattr(error, "fix", "")
        fix = fix or f"see {log}; when fixed, run the same command again"
        raise Failure(one_line(str(error)), fix) from error


def one_line(text: str) -> str:
    """Fit for a terminal: what Spark says may quote messages, and their publishers may write
    escape sequences, or lines that look like ours.
    """
    from penstock.spark.reports.html_report import visible

    return visible(" ".join(text.split()))


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """SIGTERM and SIGINT end the pipeline between two looks, not in the middle."""
    stopping = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def write_report(path: Path, text: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise Failure(f"cannot write {path}: {error.strerror}", "give another --out") from error


def say_summary(summary: dict[str, Any], *, err: bool = False) -> None:
    """The last line, JSON; for people in front of a terminal a line for each number instead.

    ``err`` for a pipeline whose standard output is its result.
    """
    around = surroundings()
    if around is not None:
        around.summarize(summary)
        return
    context = click.get_current_context(silent=True)
    wants_json = context is not None and context.params.get("output") == "json"
    stream = sys.stderr if err else sys.stdout
    for_people = stream.isatty() and not wants_json
    click.echo(summary_text(summary) if for_people else json.dumps(summary, default=str), err=err)


def summary_text(summary: dict[str, Any]) -> str:
    """What is no single value is left out: ``-o json`` has it."""
    plain = {
        name.replace("_", " "): value
        for name, value in summary.items()
        if value is not None and not isinstance(value, dict | list)
    }
    width = max(map(len, plain), default=0)
    return "\n".join(f"{name:{width}}  {one_line(str(value))}" for name, value in plain.items())


def say_failure(failure: Exception, pause_s: float) -> None:
    """One line each time a query died that is started again: an error that lasts is not silent."""
    say(f"failed, starting again in {pause_s:g} s: {one_line(str(failure))}")


def say(text: str) -> None:
    around = surroundings()
    if around is None:
        click.echo(text, err=True)
    else:
        around.say(text)


class Teller:
    """Says how a pipeline goes: a line per batch, or a bar on a terminal.

    The bar is on standard error and only on a terminal; with ``-o json`` there is neither.  Its
    rate is that since the first batch, which waited for Spark's start.
    """

    def __init__(self, output: str, total: int | None) -> None:
        self._lines = output == "text"
        self._total = total
        self._bar = self._lines and bool(total) and sys.stderr.isatty()
        self._done = 0
        self._began_s = time.monotonic()
        self._first: tuple[int, float] | None = None  # what was done with the first batch, and when

    def batch(self, line: str, messages: int) -> None:
        self._done += messages
        if self._bar:
            self._first = self._first or (self._done, time.monotonic())
            self._draw(*self._first)
        elif self._lines:
            click.echo(line)

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._began_s, 1)

    def end(self) -> None:
        if self._bar:
            click.echo("", err=True)

    def _draw(self, first: int, since_s: float) -> None:
        assert self._total
        share = min(self._done / self._total, 1.0)
        bar = ("#" * round(share * BAR_WIDTH)).ljust(BAR_WIDTH, "-")
        text = f"\r[{bar}] {share:4.0%}  {self._done} of {self._total}"
        rate = (self._done - first) / max(time.monotonic() - since_s, 0.001)
        if rate > 0:
            left_s = max(self._total - self._done, 0) / rate
            text += f"  {rate:.0f}/s  {left_s:.0f} s left"
        click.echo(f"{text} \x1b[K", nl=False, err=True)


@dataclass
class PipelineHost:
    """What one run of one pipeline has of a program that runs several of them (``run``).

    A command that is invoked alone has the process: signals, standard output, a Spark of its own.
    Among others it finds this in its click context instead.
    """

    name: str
    stopping: threading.Event
    log: Path  # of the Spark they share
    summary: dict[str, Any] = field(default_factory=dict)  # what the pipeline said at its end

    def summarize(self, summary: dict[str, Any]) -> None:
        self.summary = summary

    def say(self, line: str) -> None:
        """A line for the log of the program."""
        click.echo(f"{self.name}: {line}", err=True)


def surroundings() -> PipelineHost | None:
    """None = the command is alone."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_object(PipelineHost)
