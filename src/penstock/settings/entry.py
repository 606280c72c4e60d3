"""Settings of who may come in: addresses, numbers of connections, and passwords in plain text."""

import ipaddress
from collections.abc import Iterable
from typing import Final

from penstock.settings.kinds import Boolean, Form, Integer, NameList, Text

ALLOW: Final = "allow"
DENY: Final = "deny"
EVERYWHERE: Final = "*"
OFF: Final = "off"
OF_ADDRESS: Final = "address"
OF_USER: Final = "user"
"""Who is locked out after wrong passwords: no user, a user at one address, a user everywhere."""
USER: Final = "user:"
"""Before a user's name, as the subject of a rule."""
PROXY: Final = "proxy"
"""The subject of rules about machines that say for whom they connect."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _parse(rule: str) -> tuple[str, str, Network]:
    subject, word, network = rule.rsplit(" ", 2)
    if not subject or word not in (ALLOW, DENY):
        raise ValueError(rule)
    return subject, word, ipaddress.ip_network(network, strict=False)


def _is_rule(text: str) -> bool:
    try:
        _parse(text)
    except ValueError:
        return False
    return True


RULE: Final = Form(
    'entries such as "amqp/ssl allow 10.0.0.0/8" or "user:ann deny 192.0.2.7"', _is_rule
)


class EntrySettings:
    # fmt: off
    plain_text_passwords = Boolean(False,
        "Whether clients of other machines may log in with a password over a connection without"
        " TLS. Otherwise they are refused without a check of the password.")
    address_rules = NameList((),
        "Which addresses may connect. An entry is a subject, `allow` or `deny`, and an address or a"
        " network. A subject is a listener by its protocol (`amqp`, `amqp/ssl`, `http`, `https` …),"
        " `*` for all, `user:` and a name, or `proxy`: the proxies that may connect to the"
        " listeners of `proxy_protocol`. An address that a rule denies is refused; if there are"
        " rules that allow, all other addresses are refused as well.", form=RULE)
    connection_max_per_address = Integer(0, 0, 1 << 20,
        "Connections of one address (of IPv6, one network of 64 bits) at a time, at all listeners"
        " together. 0: no limit.")
    connection_rate_per_s = Integer(0, 0, 1 << 20,
        "New connections accepted in a second, at all listeners together; others are closed. 0: no"
        " limit.", unit="per second")
    connection_rate_per_address_per_s = Integer(0, 0, 1 << 20,
        "The same for one address. 0: no limit.", unit="per second")
    channel_max_per_node = Integer(0, 0, 1 << 31,
        "Open channels of the node, of all connections; one more is refused with 530. 0: no limit.")

    login_lockout = Text(OFF,
        "Whether log-ins of a user with a password are refused for `login_lockout_s` after"
        " `login_lockout_failures` wrong ones. `address`: those from the address of the wrong ones;"
        " `user`: those from everywhere, so that any machine that reaches a listener can lock a"
        " user out.", choices=(OFF, OF_ADDRESS, OF_USER))
    login_lockout_failures = Integer(10, 1, 1_000_000,
        "Wrong passwords within `login_lockout_window_s` that lock a user out.")
    login_lockout_window_s = Integer(300, 1, 86_400,
        "Time within which wrong passwords are counted.", unit="s")
    # fmt: on
    login_lockout_s = Integer(300, 1, 604_800, "How long a user is locked out.", unit="s")


class AddressRules:
    """What ``address_rules`` says; nothing of it changes, so any thread may ask."""

    def __init__(self, rules: Iterable[str]) -> None:
        self._allowed: dict[str, list[Network]] = {}
        self._denied: dict[str, list[Network]] = {}
        for subject, word, network in map(_parse, rules):
            book = self._allowed if word == ALLOW else self._denied
            book.setdefault(subject, []).append(network)

    def allow(self, subject: str, address: str) -> bool:
        """May this address use the listener, or log in as the user?  Unix sockets always may."""
        if not (self._allowed or self._denied):
            return True
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return True
        found = getattr(found, "ipv4_mapped", None) or found
        is_listener = subject != PROXY and not subject.startswith(USER)
        subjects = (subject, EVERYWHERE) if is_listener else (subject,)
        for one in subjects:
            if any(found in network for network in self._denied.get(one, ())):
                return False
        allowed = [network for one in subjects for network in self._allowed.get(one, ())]
        return not allowed or any(found in network for network in allowed)

    def allow_proxy(self, listener: str, address: str) -> bool:
        """May this address say for whom it connects?  Without rules for that, as a client may."""
        has_rules = PROXY in self._allowed or PROXY in self._denied
        return self.allow(PROXY if has_rules else listener, address)


def network_of(address: str) -> str:
    """The address; of IPv6 the network of 64 bits, which one machine has to itself."""
    if ":" not in address:
        return address
    try:
        given = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if given.ipv4_mapped is not None:
        return str(given.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(given) >> 64 << 64, 64)))
