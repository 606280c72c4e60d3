"""How the commands ask a management API: the options that say where and who, and what goes wrong.

``client.management`` speaks HTTP; here its failures get cause and fix.  Without ``--url``,
``--user`` and ``--password`` (or their variables) a command looks for the broker of this machine
by its control file (``core.control``), else it tries guest at the usual port.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

import click

from penstock.cli.failure import BrokerUnavailable, Failure
from penstock.cli.options import OUTPUT, all_of, option, password_option
from penstock.client.local_node import Place, choose_place
from penstock.client.management import (
    DEFAULT_URL,
    TIMEOUT_S,
    Answer,
    BadAddress,
    NobodyAnswers,
    NotJson,
)
from penstock.client.requests import REQUESTS
from penstock.core.errors import SettingInvalid

LONG_S: Final = 600.0
TERMS: Final = (
    (re.compile(r"\{value_negative,(-?[0-9.]+)\}"), r"\1 is negative"),
    (re.compile(r"\{max_value_exceeded,([0-9]+)\}"), r"\1 is too large"),
    (re.compile(r'"?expected (\w+), got longstr"?'), r"it must be an \1, not text"),
    (re.compile(r"vhost_or_user_not_found"), "there is no such user or virtual host"),
    (re.compile(r'<<"([^"]*)">>'), r"'\1'"),
)
"""Erlang terms in RabbitMQ's reasons ─► what they mean."""
FIXES: Final = {
    400: "check what was given; `--help` has an example, docs/guide/queues.md the arguments",
    403: "another user may, by --user and --password",
}
BLOCKED: Final = "publishing is blocked"

START: Final = (
    "start one with `penstock serve`; if one runs, PENSTOCK_DATA_DIR names its data directory, or"
    " --url (PENSTOCK_HTTP_URL) its address"
)
LOG_IN: Final = "give --user and --password (or PENSTOCK_USER and PENSTOCK_PASSWORD)"


class Management:
    """One management API: where it is, who asks, and in which form the answer is printed."""

    def __init__(
        self,
        url: str | None,
        user: str | None,
        password: str | None,
        output: str = "table",
        option: str = "",
    ) -> None:
        """``option``: which has address, user and password in one; "" = each has its own."""
        self._fix_of_login = f"correct user and password in {option}" if option else LOG_IN
        self._fix_of_place = f"correct the address in {option}" if option else START
        try:
            place: Place = choose_place(os.environ, url, user, password)
            self._client = place.client()
        except SettingInvalid as error:
            raise Failure(str(error), LOG_IN) from error
        except BadAddress as error:
            raise click.UsageError(f"--url {error}") from error
        self.url = self._client.url
        self.user = self._client.who.user
        self.as_json = output == "json"

    def say(self, found: object, text: str | Callable[[Any], str] = "") -> None:
        """Print it as JSON if that is the wish, else the text, or what makes a text of it."""
        shown = text if isinstance(text, str) else "" if self.as_json else text(found)
        if self.as_json:
            click.echo(json.dumps(found, indent=2))
        elif shown:
            click.echo(shown)

    def get(self, path: str, absent: Sequence[int] = ()) -> Any:
        """The JSON at ``path``, None when the answer is one of the statuses ``absent``.

        Every other way of not getting it is a ``Failure``.
        """
        return self._answer(path, absent, self._request("GET", path))

    def post(self, path: str, body: object) -> Any:
        """The JSON that answers, None when there is none."""
        return self._answer(path, [201, 204], self._request("POST", path, body))

    def put(self, path: str, body: object) -> Any:
        """The JSON that answers, None when there is none."""
        return self._answer(path, [201, 204], self._request("PUT", path, body))

    def do(self, verb: str, /, **given: object) -> Any:
        """A request of the table in ``client.requests``: the JSON that answers, or None."""
        request = REQUESTS[verb]
        path = request.path_of(given)
        answer = self._request(request.method, path, request.body_of(given))
        return self._answer(path, [201, 202, 204], answer)

    def must_find(self, path: str, cause: str, fix: str) -> Any:
        """The JSON at ``path``; a Failure of ``cause`` and ``fix`` when nothing is there."""
        found = self.get(path, absent=(404,))
        if found is None:
            raise Failure(cause, fix)
        return found

    def delete(self, path: str, headers: dict[str, str] | None = None) -> Any:
        return self._answer(path, [204], self._request("DELETE", path, None, headers))

    def _answer(self, path: str, absent: Sequence[int], answer: Answer) -> Any:
        if answer.status == 200:
            try:
                return answer.json()
            except NotJson as error:
                raise Failure(
                    f"{self.url} answers, but not with JSON", "is that a management API?"
                ) from error
        if answer.status in absent:
            return None
        reason = answer.reason() or "no reason given"
        if answer.status == 401:
            who = f"user {self.user!r}" if self.user else "the control file's token"
            raise Failure(f"{self.url} refuses {who}: {reason}", self._fix_of_login)
        if answer.status == 503:
            if reason.startswith(BLOCKED):
                raise Failure(f"{self.url}: {reason}", "`penstock flow` says why, and what helps")
            raise BrokerUnavailable(f"{self.url} is not ready: {reason}", "try again")
        if answer.status == 404:
            raise Failure(
                f"{in_words(reason)} (404 of {self.url}{path})",
                "check the names, and --vhost; `penstock queues`, `exchanges`, `users`,"
                " `connections` and `vhosts` list what there is",
            )
        raise Failure(f"{self.url} refuses it: {in_words(reason)}", FIXES.get(answer.status, ""))

    def _request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        # An import may take minutes; a look that does not come back at once never will.
        timeout_s = TIMEOUT_S if method == "GET" else LONG_S
        try:
            return self._client.request(method, path, body, headers, timeout_s)
        except NobodyAnswers as error:
            raise BrokerUnavailable(
                f"no management API answers at {self.url}: {error}",
                self._fix_of_place,
            ) from error


def in_words(reason: str) -> str:
    """A reason in RabbitMQ's words without the Erlang terms in it."""
    for pattern, words in TERMS:
        reason = pattern.sub(words, reason)
    return reason


PLACE: Final = all_of(
    option(
        "--url",
        f"Management API; default: the broker of this machine, else {DEFAULT_URL}.",
        envvar="PENSTOCK_HTTP_URL",
    ),
    option(
        "--user",
        "Default: the control file of this machine's broker, else guest.",
        envvar="PENSTOCK_USER",
    ),
    password_option(
        "--password",
        "Default: guest. file: and a name, or command: and a command, say where it is; - asks.",
        envvar="PENSTOCK_PASSWORD",
    ),
)


PLACE_KEYS: Final = ("url", "user", "password", "output")


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say where, who and in which form; the command gets a ``management``."""

    @wraps(command)
    def asked(*given: Any, **options: Any) -> None:
        place = {key: options.pop(key) for key in PLACE_KEYS if key in options}
        command(*given, management=Management(**place), **options)

    decorated: Callable[..., None] = PLACE(asked)
    return decorated


def connecting(command: Callable[..., None]) -> Callable[..., None]:
    return asking(OUTPUT(command))


NAME: Final = click.argument("name")


def example(*lines: str) -> str:
    """The end of a help: what to type after ``penstock``."""
    title = "Example" if len(lines) == 1 else "Examples"
    return "\n".join([f"\b\n{title}:", *(f"  penstock {line}" for line in lines)])


def command(
    epilog: str,
    *parameters: Callable[[Any], Any],
    of: click.Group | None = None,
    name: str | None = None,
    short: str | None = None,
    text: str | None = None,
    form: Callable[[Callable[..., None]], Callable[..., None]] = connecting,
) -> Callable[[Callable[..., None]], click.Command]:
    """A command that asks a management API, with these parameters and the options of ``form``.

    ``epilog``: an example, or the whole end of its help.  ``of``: its group; there the example's
    second word is its name, and ``short``, or else its help up to a point, is its line in the list.
    ``text``: its help, else what the function's own text says.
    """

    def made(function: Callable[..., None]) -> click.Command:
        is_example = not epilog.startswith("\b")
        end = example(epilog) if is_example else epilog
        asked = all_of(*parameters)(form(function))
        called, line = name, short
        if of is not None:
            called = name or (epilog.split()[1] if is_example else None)
            line = short or re.split("[.;:]", text or function.__doc__ or "", maxsplit=1)[0] + "."
        found = click.command(called, help=text, short_help=line, epilog=end)(asked)
        if of is not None:
            of.add_command(found)
        return found

    return made
