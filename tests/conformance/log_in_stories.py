"""Stories of log-ins: mechanisms, passwords, virtual hosts, limits, what is agreed on, what ends.

They make users by the management API, and some need lines of rabbitmq.conf, which both brokers
read.  ``python -m tests.conformance.log_in_stories`` records RabbitMQ's side; like other cases they
assert nothing and leave a transcript.
"""

import json
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.conformance.api_stories import VhostWorld
from tests.helpers import raw_codec as codec
from tests.helpers.rabbit import ManagedRabbit
from tests.helpers.raw_amqp import CLOSED, RawClient

Story = Callable[["LogInWorld"], None]
PLAIN: Final = "plain"
SMALL: Final = "small"
UNBOUNDED: Final = "unbounded"
FEW: Final = "few"
CONFIGURATIONS: Final = {
    PLAIN: "",
    SMALL: "channel_max = 10\nframe_max = 8192\nheartbeat = 5\n",
    UNBOUNDED: "channel_max = 0\nframe_max = 0\nheartbeat = 0\n",
    FEW: "connection_max = 2\n",
}
"""Lines of rabbitmq.conf, by the word for them."""
STORIES: Final[dict[str, tuple[str, Story]]] = {}
RECORDED: Final = Path(__file__).parent / "recorded" / "log_in_stories" / "rabbitmq-4.3.6.json"
FAILURE_CLOSE: Final = {"capabilities": {"authentication_failure_close": True}}
EVERYTHING: Final = {"configure": ".*", "write": ".*", "read": ".*"}
ROOT: Final = "%2F"
OPEN: Final = {"channel_max": 10, "frame_max": 131072, "heartbeat": 0}


class LogInWorld(VhostWorld):
    """With users."""

    def delete(self, path: str) -> None:
        status, _ = self.api("DELETE", path)
        self.lines.append(f"DELETE {path} -> {status}")

    def user_named(self, base: str = "u", **body: Any) -> str:
        """Make one that may do everything in the first virtual host; its password is ``right``."""
        name = self.name(base)
        self.put(f"users/{name}", {"tags": "", "password": "right"} | body)
        self.put(f"permissions/{ROOT}/{name}", EVERYTHING)
        return name

    def knock(self, user: str, password: str, vhost: str = "/", name: str = "A") -> RawClient:
        """Log in and enter the virtual host; the connection stays."""
        client = self.raw(name)
        client.note(self._knock(client, user, password, vhost, OPEN))
        return client

    def tunings(self, *asked: tuple[int, int, int]) -> None:
        """What is said to channel_max, frame_max and heartbeat of tune-ok."""
        knock = partial(self._knock, user="guest", password="guest", vhost="/")
        names = ("channel_max", "frame_max", "heartbeat")
        self._side_by_side(
            [partial(knock, asked=dict(zip(names, one, strict=True))) for one in asked]
        )

    def offers(self, mechanism: str, responses: dict[str, bytes | str]) -> None:
        """What is said to these responses, by what each is."""
        self._side_by_side(
            [
                partial(self._offer, mechanism=mechanism, response=response, note=note)
                for note, response in responses.items()
            ]
        )

    def _side_by_side(self, told: list[Callable[[RawClient], str]]) -> None:
        """A connection each: an answer to a refused log-in is late."""
        clients = [self.raw() for _ in told]
        with ThreadPoolExecutor(len(told)) as pool:
            lines = list(pool.map(lambda one, client: one(client), told, clients))
        for client, line in zip(clients, lines, strict=True):
            client.note(line)
            client.close_socket()

    def _knock(
        self, client: RawClient, user: str, password: str, vhost: str, asked: dict[str, int]
    ) -> str:
        client.start()
        steps = [f"{user} {password!r}", self._log_in(client, "PLAIN", f"\0{user}\0{password}")]
        if steps[-1].startswith("tune"):
            steps.append("tune-ok " + " ".join(str(value) for value in asked.values()))
            client.send_off_record(codec.method_frame(0, "connection.tune-ok", **asked))
            steps.append(f"open {vhost[:20]!r}")
            client.send_off_record(codec.method_frame(0, "connection.open", virtual_host=vhost))
            steps.append(_answer(client))
        return "; ".join(steps)

    def _offer(self, client: RawClient, mechanism: str, response: bytes | str, note: str) -> str:
        client.start()
        return f"{mechanism} {note}; {self._log_in(client, mechanism, response)}"

    def _log_in(self, client: RawClient, mechanism: str, response: bytes | str) -> str:
        frame = codec.method_frame(
            0, "connection.start-ok", client_properties=FAILURE_CLOSE, mechanism=mechanism,
            response=response, locale="en_US",
        )  # fmt: skip
        client.send_off_record(frame)
        return _answer(client)


def _answer(client: RawClient) -> str:
    """In short; a close is answered, and must be the end."""
    event = client.receive_quietly()
    if event.name == "connection.close":
        client.send_off_record(codec.method_frame(0, "connection.close-ok"))
        end = client.receive_quietly().name
        return f"{event.args['code']} {event.args['text']}" + ("" if end == CLOSED else f" {end}")
    if event.name == "connection.tune":
        return "tune " + " ".join(str(value) for value in event.args.values())
    return event.name


def story(configuration: str) -> Callable[[Story], Story]:
    def register(function: Story) -> Story:
        STORIES[function.__name__] = (configuration, function)
        return function

    return register


def _amqplain(**fields: Any) -> bytes:
    return codec.encode_table(fields)[4:]


@story(PLAIN)
def passwords(w: LogInWorld) -> None:
    u = w.user_named()
    tried = ("right", "", "wrong", "right ", " right", "RIGHT", "righ", "right" * 200)
    responses: dict[str, bytes | str] = {
        f"{password[:20]!r} of {len(password)}": f"\0{u}\0{password}" for password in tried
    }
    responses["name that is no UTF-8"] = b"\0\xff\xfe\0right"
    responses["password that is no UTF-8"] = b"\0" + u.encode() + b"\0\xff\xfe"
    responses["name in capitals"] = f"\0{u.upper()}\0right"
    w.offers("PLAIN", responses)


@story(PLAIN)
def fields_of_amqplain(w: LogInWorld) -> None:
    u = w.user_named()
    w.offers(
        "AMQPLAIN",
        {
            "right": _amqplain(LOGIN=u, PASSWORD="right"),
            "the other order": _amqplain(PASSWORD="right", LOGIN=u),
            "one more field": _amqplain(LOGIN=u, PASSWORD="right", REALM="x"),
            "twice the name": _amqplain(LOGIN=u) + _amqplain(LOGIN=u, PASSWORD="right"),
            "first a wrong password": _amqplain(LOGIN=u, PASSWORD="no")
            + _amqplain(PASSWORD="right"),
            "then a wrong password": _amqplain(LOGIN=u, PASSWORD="right")
            + _amqplain(PASSWORD="no"),
            "small letters": _amqplain(login=u, password="right"),
            "no name": _amqplain(PASSWORD="right"),
            "byte arrays": _amqplain(LOGIN=u.encode(), PASSWORD=b"right"),
            "a number": _amqplain(LOGIN=u, PASSWORD=5),
            "a table": _amqplain(LOGIN=u, PASSWORD={}),
            "nothing": b"",
            "a blank password": _amqplain(LOGIN=u, PASSWORD=""),
        },
    )


@story(PLAIN)
def mechanisms(w: LogInWorld) -> None:
    response = f"\0{w.user_named()}\0right"
    for mechanism in ("RABBIT-CR-DEMO", "EXTERNAL", "CRAM-MD5", "SCRAM-SHA-256", "PLAIN "):
        w.offers(mechanism, {"of a user": response})


@story(PLAIN)
def anonymous(w: LogInWorld) -> None:
    w.offers("ANONYMOUS", {"empty": "", "with a name": "trace"})


@story(PLAIN)
def users_without_a_password(w: LogInWorld) -> None:
    for body in ({"password_hash": ""}, {"password": ""}, {"password": None}, {}):
        name = w.name("u")
        w.put(f"users/{name}", {"tags": "", **body})
        w.offers("PLAIN", {"blank": f"\0{name}\0", "some": f"\0{name}\0x"})
        w.offers("AMQPLAIN", {"blank": _amqplain(LOGIN=name, PASSWORD="")})


@story(PLAIN)
def a_password_is_taken_away(w: LogInWorld) -> None:
    u = w.user_named()
    a = w.knock(u, "right")
    w.put(f"users/{u}", {"tags": "", "password_hash": ""})
    w.knock(u, "right")
    w.knock(u, "")
    a.open_channel(1)
    w.barrier(a)


@story(PLAIN)
def tags(w: LogInWorld) -> None:
    for tag in ("", "administrator", "monitoring", "none", "a,b", "management policymaker"):
        u = w.user_named(tags=tag)
        w.knock(u, "right")


@story(PLAIN)
def names_of_users(w: LogInWorld) -> None:
    for base in ("with space", "ümlaut", "a:b", "a.b", "A"):
        name = w.name("u") + base
        path = f"users/{name.replace(' ', '%20').replace('ü', '%C3%BC').replace(':', '%3A')}"
        w.put(path, {"tags": "", "password": "right"})
        w.offers("PLAIN", {base: f"\0{name}\0right"})
        w.offers("AMQPLAIN", {base: _amqplain(LOGIN=name, PASSWORD="right")})


@story(PLAIN)
def virtual_hosts(w: LogInWorld) -> None:
    u, admin, v = w.user_named(), w.user_named("admin", tags="administrator"), w.vhost()
    stranger = w.name("stranger")
    w.put(f"users/{stranger}", {"tags": "administrator", "password": "right"})
    for user in (u, admin, stranger):
        for vhost in ("/", v, "nowhere", "", "//", "n" * 255):
            w.knock(user, "right", vhost)
    w.put(f"permissions/{v}/{u}", {"configure": "", "write": "", "read": ""})
    w.knock(u, "right", v)


@story(PLAIN)
def limits_of_users(w: LogInWorld) -> None:
    u = w.user_named()
    for value in (0, 1, -1, -5, "one", 1.5, None):
        w.put(f"user-limits/{u}/max-connections", {"value": value})
        first = w.knock(u, "right")
        second = w.knock(u, "right", name="B")
        for client in (second, first):
            _leave(client)
    w.delete(f"user-limits/{u}/max-connections")
    for value in (0, 1, -1):
        w.put(f"user-limits/{u}/max-channels", {"value": value})
        a = w.knock(u, "right")
        for channel in (1, 2):
            a.send_off_record(codec.method_frame(channel, "channel.open"))
            if (told := _answer(a)) != "channel.open-ok":
                a.note(told)
                break
        _leave(a)
    w.put(f"user-limits/{u}/max-sheep", {"value": 1})
    w.put(f"user-limits/{w.name('nobody')}/max-channels", {"value": 1})


@story(PLAIN)
def limits_of_virtual_hosts(w: LogInWorld) -> None:
    v = w.vhost()
    w.put(f"permissions/{v}/guest", EVERYTHING)
    for value in (0, 1, -1, -5, "one", 1.5, None):
        w.put(f"vhost-limits/{v}/max-connections", {"value": value})
        first = w.knock("guest", "guest", v)
        second = w.knock("guest", "guest", v, name="B")
        for client in (second, first):
            _leave(client)
    w.put(f"vhost-limits/{v}/max-sheep", {"value": 1})
    w.put("vhost-limits/nowhere/max-connections", {"value": 1})


def _leave(client: RawClient) -> None:
    """Close in order, and off the record: only then it counts no more."""
    client.send_off_record(codec.method_frame(0, "connection.close", code=200))
    client.receive_quietly()
    client.close_socket()


@story(PLAIN)
def a_limit_below_what_is_there(w: LogInWorld) -> None:
    u, v = w.user_named(), w.vhost()
    w.put(f"permissions/{v}/{u}", EVERYTHING)
    for path in (f"user-limits/{u}/max-connections", f"vhost-limits/{v}/max-connections"):
        for value in (1, 0):
            a = w.knock(u, "right", v)
            w.put(path, {"value": value})
            a.receive(2.0)
            a.open_channel(1)
            w.barrier(a)
            w.delete(path)
            _leave(a)


@story(PLAIN)
def a_user_is_deleted(w: LogInWorld) -> None:
    u = w.user_named()
    a = w.knock(u, "right")
    w.delete(f"users/{u}")
    w.fate(a, timed=False)
    w.knock(u, "right")


@story(PLAIN)
def a_virtual_host_is_deleted(w: LogInWorld) -> None:
    u, v = w.user_named(), w.vhost()
    w.put(f"permissions/{v}/{u}", EVERYTHING)
    a = w.knock(u, "right", v)
    w.delete(f"vhosts/{v}")
    event = a.receive_quietly()  # its text says that it is down, or that it is deleted
    a.note(f"< {event.name} {event.args['code']}")
    w.knock(u, "right", v)


@story(PLAIN)
def rights_are_taken_away(w: LogInWorld) -> None:
    u, v = w.user_named(), w.vhost()
    w.put(f"permissions/{v}/{u}", EVERYTHING)
    a = w.knock(u, "right", v)
    a.open_channel(1)
    w.barrier(a)
    w.delete(f"permissions/{v}/{u}")
    a.receive(2.0)
    w.knock(u, "right", v, name="B")


@story(PLAIN)
def a_password_is_changed(w: LogInWorld) -> None:
    u = w.user_named()
    a = w.knock(u, "right")
    w.put(f"users/{u}", {"tags": "", "password": "better"})
    a.open_channel(1)
    w.barrier(a)
    w.knock(u, "right", name="B")
    w.knock(u, "better", name="B")


_TUNED: Final = (
    (0, 0, 0),
    (1, 8192, 1),
    (1, 8191, 1),
    (1, 4096, 1),
    (1, 0, 0),
    (0, 8192, 0),
    (1, 8193, 0),
    (10, 131072, 60),
    (11, 131072, 60),
    (2047, 131072, 65535),
    (2048, 131072, 0),
    (65535, 131072, 0),
    (1, 131073, 0),
    (1, 4294967295, 0),
)


@story(PLAIN)
def tuned_against_defaults(w: LogInWorld) -> None:
    w.tunings(*_TUNED)


@story(SMALL)
def tuned_against_small_offers(w: LogInWorld) -> None:
    w.tunings(*_TUNED)


@story(UNBOUNDED)
def tuned_against_no_limits(w: LogInWorld) -> None:
    w.tunings(*_TUNED)


@story(FEW)
def connections_of_the_node(w: LogInWorld) -> None:
    w.knock("guest", "guest")
    w.knock("guest", "guest", name="B")
    w.knock("guest", "guest", name="C")


def tell(url: str, api_port: int, name: str) -> list[str]:
    world = LogInWorld(url, api_port)
    try:
        STORIES[name][1](world)
    finally:
        world.close()
    return world.transcript()


def told_by_rabbitmq() -> dict[str, list[str]]:
    """What the one says that is installed, or named by the environment."""
    told: dict[str, list[str]] = {}
    for configuration, lines in CONFIGURATIONS.items():
        with (
            tempfile.TemporaryDirectory() as directory,
            ManagedRabbit(Path(directory), config=lines) as running,
        ):
            names = [name for name, (wanted, _) in STORIES.items() if wanted == configuration]
            told |= {name: tell(running.url, running.http_port, name) for name in names}
    return told


if __name__ == "__main__":
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text(json.dumps(dict(sorted(told_by_rabbitmq().items())), indent=1) + "\n")
