"""Commands that look into a running broker through its management API.

They are outside users: plain HTTP with the standard library, nothing imported from the
broker.  Table output asks the server for just the columns it prints; JSON output is what the
server said, unchanged.  Names come from strangers, so a table prints no control character.
"""

import json
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from penstock import __version__
from penstock.cli.failure import Failure, Unavailable

DEFAULT_URL: Final = "http://127.0.0.1:15672"
TIMEOUT_S: Final = 10.0


class Management:
    """One management API: where it is and who asks."""

    def __init__(self, url: str, user: str, password: str) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.UsageError(f"--url {url!r} is no address like {DEFAULT_URL}")
        try:
            self.port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise click.UsageError(f"--url {url!r}: {error}") from error
        self.scheme = parts.scheme
        self.host = parts.hostname
        self.prefix = parts.path.rstrip("/")
        self.url = url
        self.user = user
        self.password = password

    def get(self, path: str, absent: Sequence[int] = ()) -> Any:
        """The JSON at ``path``, None when the answer is one of the statuses ``absent``.

        Every other way of not getting it is a ``Failure``.
        """
        return self._answer(path, absent, *self._request(path))

    def post(self, path: str, body: bytes) -> Any:
        """The JSON that answers, None when there is none."""
        return self._answer(path, [204], *self._request(path, "POST", body))

    def put(self, path: str, body: bytes) -> Any:
        """The JSON that answers, None when there is none."""
        return self._answer(path, [201, 204], *self._request(path, "PUT", body))

    def delete(self, path: str, headers: dict[str, str]) -> None:
        self._answer(path, [204], *self._request(path, "DELETE", headers=headers))

    def _answer(self, path: str, absent: Sequence[int], status: int, body: bytes) -> Any:
        if status == 200:
            return self._parsed(body)
        if status in absent:
            return None
        if status == 401:
            raise Failure(
                f"{self.url} refuses user {self.user!r}: {self._reason(body)}",
                "give --user and --password (or PENSTOCK_USER and PENSTOCK_PASSWORD)",
            )
        if status == 503:
            raise Unavailable(f"{self.url} is not ready: {self._reason(body)}", "try again")
        raise Failure(f"{self.url}{path} answers {status}: {self._reason(body)}")

    def _request(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        from base64 import b64encode
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        kind = HTTPSConnection if self.scheme == "https" else HTTPConnection
        connection = kind(self.host, self.port, timeout=TIMEOUT_S)
        token = b64encode(f"{self.user}:{self.password}".encode()).decode()
        try:
            sent = {"Authorization": f"Basic {token}", "Accept": "application/json"}
            sent |= headers or {}
            # As bytes: the library would take no character beyond Latin-1.
            encoded = {name: value.encode() for name, value in sent.items()}
            connection.request(method, self.prefix + path, body, encoded)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException) as error:
            raise Unavailable(
                f"no management API answers at {self.url}: {str(error) or type(error).__name__}",
                "start one with `penstock serve`, or give --url (or PENSTOCK_HTTP_URL)",
            ) from error
        finally:
            connection.close()

    def _parsed(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except ValueError as error:
            raise Failure(
                f"{self.url} answers, but not with JSON", "is that a management API?"
            ) from error

    def _reason(self, body: bytes) -> str:
        try:
            return str(json.loads(body)["reason"])
        except (ValueError, KeyError, TypeError):
            return "no reason given"


def connecting(command: Callable[..., None]) -> Callable[..., None]:
    """The options every look needs: where, who, and which form of output."""
    for option in reversed(
        (
            click.option(
                "--url", envvar="PENSTOCK_HTTP_URL", default=DEFAULT_URL, show_default=True
            ),
            click.option("--user", envvar="PENSTOCK_USER", default="guest", show_default=True),
            click.option("--password", envvar="PENSTOCK_PASSWORD", default="guest"),
            click.option(
                "-o",
                "output",
                type=click.Choice(["table", "json"]),
                default="table",
                show_default=True,
                help="Form of the output.",
            ),
        )
    ):
        command = option(command)
    return command


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under their titles, numbers to the right; safe to print on a terminal."""
    cells = [list(columns), *([shown(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    numeric = [
        bool(rows) and all(type(row[i]) in (int, float, type(None)) for row in rows)
        for i in range(len(columns))
    ]
    lines = []
    for line in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def shown(cell: object) -> str:
    """As a table shows it: no control character leaves here."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in str(cell)
    )


def _dig(item: Any, dotted: str) -> object:
    for part in dotted.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item


def _list(
    path: str, fields: Sequence[tuple[str, str]], url: str, user: str, password: str, output: str
) -> None:
    """Print the list at ``path``; ``fields`` are pairs of title and dotted JSON field."""
    from urllib.parse import quote

    management = Management(url, user, password)
    if output == "json":
        click.echo(json.dumps(management.get(path), indent=2))
        return
    columns = ",".join(field for _, field in fields)
    items = management.get(f"{path}?columns={quote(columns)}")
    rows = [[_dig(item, field) for _, field in fields] for item in items]
    click.echo(table([title for title, _ in fields], rows))


def _path(kind: str, vhost: str | None) -> str:
    from urllib.parse import quote

    return f"/api/{kind}" if vhost is None else f"/api/{kind}/{quote(vhost, safe='')}"


vhost_option = click.option("--vhost", default=None, help="Only this virtual host.")


@click.command(
    short_help="List queues.", epilog="\b\nExample:\n  penstock queues --vhost / -o json"
)
@vhost_option
@connecting
def queues(vhost: str | None, url: str, user: str, password: str, output: str) -> None:
    """List queues: how many messages wait, how many are out with consumers."""
    fields = (
        ("vhost", "vhost"),
        ("name", "name"),
        ("durable", "durable"),
        ("ready", "messages_ready"),
        ("unacked", "messages_unacknowledged"),
        ("consumers", "consumers"),
        ("bytes", "message_bytes_ready"),
        ("in memory", "messages_ram"),
    )
    _list(_path("queues", vhost), fields, url, user, password, output)


@click.command(short_help="List exchanges.", epilog="\b\nExample:\n  penstock exchanges --vhost /")
@vhost_option
@connecting
def exchanges(vhost: str | None, url: str, user: str, password: str, output: str) -> None:
    """List exchanges; the one without a name is the default exchange."""
    fields = (
        ("vhost", "vhost"),
        ("name", "name"),
        ("type", "type"),
        ("durable", "durable"),
        ("auto-delete", "auto_delete"),
        ("internal", "internal"),
    )
    _list(_path("exchanges", vhost), fields, url, user, password, output)


@click.command(short_help="List connections.", epilog="\b\nExample:\n  penstock connections")
@connecting
def connections(url: str, user: str, password: str, output: str) -> None:
    """List client connections."""
    fields = (
        ("name", "name"),
        ("user", "user"),
        ("vhost", "vhost"),
        ("state", "state"),
        ("channels", "channels"),
        ("client", "client_properties.product"),
        ("given name", "user_provided_name"),
    )
    _list("/api/connections", fields, url, user, password, output)


@click.command(
    short_help="Show a broker's totals.", epilog="\b\nExample:\n  penstock overview -o json"
)
@connecting
def overview(url: str, user: str, password: str, output: str) -> None:
    """Show a broker's totals: messages, objects, traffic since it started."""
    management = Management(url, user, password)
    found = management.get("/api/overview")
    if output == "json":
        click.echo(json.dumps(found, indent=2))
        return
    rows: list[tuple[str, object]] = [
        ("node", found.get("node")),
        ("version", f"{found.get('product_name')} {found.get('product_version')}"),
    ]
    for group in ("queue_totals", "object_totals", "message_stats"):
        for name, value in sorted(found.get(group, {}).items()):
            if isinstance(value, int):
                rows.append((name, value))
    click.echo(table(("what", "value"), rows))


@click.command(
    short_help="Ask a broker whether it is alive.",
    epilog="\b\nExample:\n  penstock ping && echo alive",
)
@connecting
def ping(url: str, user: str, password: str, output: str) -> None:
    """Ask a broker whether it is alive: its data loop answers. Exit code 69 if not."""
    management = Management(url, user, password)
    begun = time.perf_counter()
    management.get("/healthz/live")
    took_ms = (time.perf_counter() - begun) * 1000
    if output == "json":
        click.echo(json.dumps({"status": "ok", "took_ms": round(took_ms, 2)}))
    else:
        click.echo(f"alive, answered in {took_ms:.1f} ms")


@click.command(short_help="Say which build this is.", epilog="\b\nExample:\n  penstock version")
def version() -> None:
    """Say which build this is: version, Python, and whether the hot path is compiled."""
    from penstock.core import message

    build = "interpreted" if str(message.__file__).endswith(".py") else "compiled"
    click.echo(
        f"penstock {__version__}, {build}, {platform.python_implementation()}"
        f" {platform.python_version()}"
    )
