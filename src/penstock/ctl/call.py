"""What a verb's function gets: the words and options of the command line, and the node to ask.

A function checks its words first, then says what it is about to do (``say``: the status line,
which ``--quiet`` and machine-readable formats drop), asks the node, and returns what is to be
printed: None, a text, or a ``Table`` or ``Facts`` of ``output``.
"""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TextIO

from penstock.client.local_node import Place, choose_place
from penstock.client.management import Answer, BadAddress, NobodyAnswers, TooLate, path_of
from penstock.client.passwords import warning_of, warning_of_address
from penstock.client.requests import REQUESTS
from penstock.core.errors import SettingInvalid
from penstock.ctl.faults import DATA, NO_USER, NOT_YET, UNAVAILABLE, USAGE, Fault, Invalid, Refused
from penstock.ctl.options import Value

MACHINE_READABLE: Final = ("json", "csv")
LONG_S: Final = 3600.0
"""How long a node may take that was given no time limit."""
NODE_DOWN: Final = """\
Error: unable to perform an operation on node '{node}'. Please see diagnostics information and \
suggestions below.

Most common reasons for this are:

 * Target node is unreachable (e.g. due to hostname resolution, TCP connection or firewall issues)
 * CLI tool fails to authenticate with the server (e.g. no control file of it can be read, or a \
wrong --user or --password)
 * Target node is not running

In addition to the diagnostics info below:

 * Consult server logs on node {node}
 * If a node is running, penstockctl finds it by the control file in its data directory: give \
--data-dir or PENSTOCK_DATA_DIR, or else --url with --user and --password

DIAGNOSTICS
===========

{why}"""
NOT_JSON = "JSON decoding error. Reason: badarg"


class Node:
    def __init__(self, place: Place, wanted: str, timeout_s: float, verb: str) -> None:
        """``wanted``: the name given with ``-n``, "" for none.  Raises Fault."""
        self._verb = verb
        try:
            self._client = place.client()
        except BadAddress as error:
            raise Fault(USAGE, f"Error (argument validation): --url {error}") from error
        self._timeout_s = timeout_s
        self._control = place.control
        self.trust = place.trust
        self._name = place.control.node if place.control else ""
        self._wanted = wanted
        if wanted and self._name:
            self._must_be(self._name)

    @property
    def name(self) -> str:
        if not self._name:
            self._name = str(self.get("/api/nodes?columns=name")[0]["name"])
        return self._name

    @property
    def url(self) -> str:
        return self._client.url

    @property
    def pid(self) -> int:
        """Of the process, if it is on this machine; else 0."""
        return self._control.pid if self._control else 0

    def check_name(self) -> None:
        """A verb acts only upon the node that is named with ``-n``; raises Fault."""
        if self._wanted:
            self._must_be(self.name)

    def _must_be(self, name: str) -> None:
        wanted, _, host = self._wanted.partition("@")
        mine, _, my_host = name.partition("@")
        if wanted not in (mine, "rabbit") or (host and host not in (my_host, "localhost")):
            raise self.down(f"{self.url} is node {name}")

    def down(self, why: str) -> Fault:
        node = self._wanted or self._name or self.url
        return Fault(UNAVAILABLE, NODE_DOWN.format(node=node, why=why))

    # -- asking -----------------------------------------------------------------------------

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Whatever it answers, but for refusals of a log-in; raises Fault."""
        try:
            answer = self._client.request(method, path, body, headers, self._timeout_s)
        except TooLate as error:
            node = self._name or self.url
            text = f"Error: operation {self._verb} on node {node} timed out. Timeout value used: "
            raise Fault(NOT_YET, f"{text}{self._timeout_s * 1000:.0f}") from error
        except NobodyAnswers as error:
            raise self.down(f"{self.url}: {error}") from error
        if answer.status == 401 and b'"not_authorised"' not in answer.body:
            raise self.down(f"{self.url} refuses the log-in: {answer.reason() or 'no reason'}")
        if answer.status == 503 and b'"starting"' in answer.body:
            raise Fault(
                USAGE,
                "Error: this command requires the 'rabbit' app to be running on the target node."
                f" It is not ready yet: {answer.reason()}",
            )
        return answer

    def get(self, path: str) -> Any:
        """The JSON there; raises Fault for any other answer than 200."""
        return self.must(self.ask("GET", path)).json()

    def found(self, path: str) -> Any:
        answer = self.ask("GET", path)
        return None if answer.status == 404 else self.must(answer).json()

    def post(self, path: str, body: object) -> Any:
        return self.must(self.ask("POST", path, body)).json()

    def do(self, verb: str, given: Mapping[str, object]) -> Answer:
        """A request of the table; the answer may be 404 for a GET or DELETE.  Raises Fault."""
        request = REQUESTS[verb]
        answer = self.ask(request.method, request.path_of(given), request.body_of(given))
        if answer.status == 404 and request.method in ("GET", "DELETE"):
            return answer
        return self.must(answer)

    def delete(self, path: str, headers: dict[str, str] | None = None) -> bool:
        answer = self.ask("DELETE", path, None, headers)
        if answer.status == 404:
            return False
        self.must(answer)
        return True

    def must(self, answer: Answer) -> Answer:
        if answer.ok:
            return answer
        reason = answer.reason() or f"HTTP status {answer.status}"
        raise Fault(UNAVAILABLE, f"Error:\n{reason}")

    def has_vhost(self, vhost: str) -> bool:
        return self.found(path_of("vhosts", vhost) + "?columns=name") is not None


class Call:
    def __init__(
        self,
        verb: str,
        words: list[str],
        options: Mapping[str, Value],
        environment: Mapping[str, str],
        out: TextIO,
        own: Collection[str] = (),
    ) -> None:
        """``own``: options of the verb itself, which are not about where to ask and who asks."""
        self.verb = verb
        self._own = own
        self.words = words
        self.options = options
        self.environment = environment
        self.out = out
        self._node: Node | None = None

    # -- options ------------------------------------------------------------------------------

    def text(self, name: str, default: str = "") -> str:
        return str(self.options.get(name, default))

    def is_set(self, name: str) -> bool:
        return bool(self.options.get(name, False))

    @property
    def vhost(self) -> str:
        return self.text("vhost", "/")

    @property
    def formatter(self) -> str:
        return self.text("formatter")

    @property
    def is_silent(self) -> bool:
        return self.is_set("silent")

    @property
    def is_quiet(self) -> bool:
        return self.is_silent or self.is_set("quiet")

    def number(self, name: str, default: int) -> int:
        found = self.options.get(name)
        return default if found is None else int(found)

    # -- words --------------------------------------------------------------------------------

    def take(self, least: int, most: int | None = None) -> list[str]:
        """The words after the verb; raises Invalid when they are too few or too many."""
        if len(self.words) < least:
            raise Invalid("not enough arguments.")
        if len(self.words) > (least if most is None else most):
            raise Invalid("too many arguments.")
        return self.words

    # -- the node -----------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """Raises Fault when there is none by that name."""
        if self._node is None:
            environment = dict(self.environment)
            if "data-dir" in self.options:
                environment["PENSTOCK_DATA_DIR"] = self.text("data-dir")
            try:
                place = choose_place(
                    environment,
                    self._given("url", "PENSTOCK_HTTP_URL"),
                    self._given("user", "PENSTOCK_USER"),
                    self._given("password", "PENSTOCK_PASSWORD"),
                )
            except SettingInvalid as error:
                raise Fault(USAGE, f"Error: {error}") from error
            timeout_s = float(self.number("timeout", 0)) or LONG_S
            self._node = Node(place, self.text("node"), timeout_s, self.verb)
            self._node.check_name()
        return self._node

    def do(self, verb: str, /, **given: object) -> Answer:
        """``Node.do`` in the virtual host that is named."""
        return self.node.do(verb, {"vhost": self.vhost, **given})

    def forget_node(self) -> None:
        self._node = None

    def _given(self, option: str, variable: str) -> str | None:
        if option in self.options and option not in self._own:
            text = self.text(option)
            warning = ""
            if option == "password":
                warning = warning_of(text, "--password")
            elif option == "url":
                warning = warning_of_address(text, "--url", variable)
            sys.stderr.write(f"Warning: {warning}\n" if warning else "")
            return text
        return self.environment.get(variable)

    # -- saying -------------------------------------------------------------------------------

    def say(self, status_line: str) -> None:
        if not self.is_quiet and self.formatter not in MACHINE_READABLE:
            self.out.write(status_line + "\n")
            self.out.flush()


# -- words that mean more than their letters -----------------------------------------------------


def json_of(text: str) -> Any:
    """Raises Refused with RabbitMQ's words."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(NOT_JSON, UNAVAILABLE) from error


def object_of(text: str) -> dict[str, Any]:
    found = json_of(text)
    if not isinstance(found, dict):
        raise Refused(NOT_JSON, UNAVAILABLE)
    return found


def must_enter(call: Call, vhost: str) -> None:
    """The virtual host has to be there; said as the lists of its things say it."""
    if not call.node.has_vhost(vhost):
        raise Fault(DATA, f"Virtual host '{vhost}' does not exist")


def must_have(call: Call, vhost: str, user: str) -> None:
    """Both have to be there; said as the verbs about permissions say it."""
    if call.node.found(path_of("users", user)) is None:
        raise Refused(f"User {user} does not exist", NO_USER)
    if not call.node.has_vhost(vhost):
        raise Refused(f"Virtual host {vhost} does not exist", UNAVAILABLE)


def must_know(call: Call, name: str) -> None:
    """As the verbs do that show Erlang's own error."""
    if call.node.found(path_of("users", name)) is None:
        raise Refused(f'{{:no_such_user, "{name}"}}', UNAVAILABLE)


def check_limits(limits: Mapping[str, Any], known: Sequence[str], unknown: str) -> None:
    """``unknown``: why a name that is not known is refused.  Raises Refused."""
    for limit, value in limits.items():
        if limit not in known:
            shown = ",".join(f'{{<<"{key}">>,{one}}}' for key, one in limits.items())
            raise Refused(unknown.format(terms=f"[{shown}]"), UNAVAILABLE)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(f"{limit} should be number, actually was {value}", UNAVAILABLE)


def columns_of(call: Call, known: Sequence[str], default: Sequence[str]) -> list[str]:
    """The columns that are asked for, as words or with commas between; raises Invalid."""
    asked = [name for word in call.words for name in word.split(",") if name]
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise Invalid(f"Info key(s) {','.join(unknown)} are not supported")
    return list(dict.fromkeys(asked)) or list(default)
