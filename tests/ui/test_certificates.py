"""The page of certificates, of a broker whose certificates end soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.broker_process import free_port
from tests.helpers.certificates import MISSING, Authority
from tests.helpers.live_broker import LiveBroker
from tests.ui.visit import Visit

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    names = "DNS:broker.example,DNS:*.broker.example,IP:10.0.0.1"
    certificate, key = authority.sign("server", "/CN=broker.example", names)
    tls = ("--ssl-certfile", certificate, "--ssl-keyfile", key)
    ports = ("--ssl-port", str(free_port()), "--https-port", str(free_port()))
    with LiveBroker(
        arguments=(*tls, *ports, "--ssl-cacertfile", str(authority.certificate))
    ) as one:
        yield one


def test_certificates_with_names_and_days(visit: Visit) -> None:
    visit.log_in()
    visit.heading("Overview")
    visit.menu("Certificates")
    visit.heading("Certificates")
    row = visit.row("Certificates", "broker.example")
    for text in ("*.broker.example, 10.0.0.1", "1 day", "https"):
        row.get_by_text(text).first.wait_for()
    visit.row("Certificates", "Test ca").first.wait_for()
    visit.shoot("certificates")
    visit.page.set_viewport_size({"width": 390, "height": 800})
    visit.shoot_now("certificates-phone")
    wide = visit.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    visit.check()
