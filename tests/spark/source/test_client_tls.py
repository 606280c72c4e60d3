"""The range protocol over TLS: whom the client trusts, who it is, and what it says when not."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import __version__
from penstock_ranges.ranges import BROWSE
from pyspark_penstock import client
from pyspark_penstock.endpoints import Endpoint, Tls, parse_url
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import MISSING, Authority
from tests.helpers.live_broker import LiveBroker
from tests.spark.spark_tools import publish

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


class Site:
    """A broker that asks its TLS clients for certificates."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")
        self.own = self.authority.sign("client", "/CN=reader")
        certificate, key = self.authority.sign("server", "/CN=b", "DNS:localhost,IP:127.0.0.1")
        self.port = free_port()
        self.broker = LiveBroker(
            directory / "broker",
            (
                *("--ssl-port", str(self.port), "--ssl-certfile", certificate),
                *("--ssl-keyfile", key, "--ssl-cacertfile", str(self.authority.certificate)),
                *("--ssl-verify", "verify_peer", "--ssl-fail-if-no-peer-cert", "true"),
            ),
        )

    def url(self, parameters: str, port: int = 0) -> str:
        return f"amqps://guest:guest@localhost:{port or self.port}/%2f?{parameters}"

    def mutual(self) -> str:
        files = (self.authority.certificate, *self.own)
        return "cacertfile={}&certfile={}&keyfile={}".format(*files)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("tls"))
    with made.broker:
        yield made


def refused(url: str) -> str:
    with pytest.raises(client.Refused) as caught, client.Connection(parse_url(url)) as line:
        line.login()
    return str(caught.value)


def test_a_queue_is_read_over_tls(site: Site) -> None:
    publish(site.broker.url, "secret", [b"x" * 300_000])
    end = parse_url(site.url(site.mutual()))
    with client.RangeClient(end, "secret", BROWSE) as reader:
        [block] = reader.blocks(0, 1, 1 << 20, with_body=True)
    assert block.count == 1
    with client.Connection(end) as line:
        assert isinstance(line._socket, ssl.SSLSocket)
        assert line.login() == __version__


def test_options_replace_what_the_url_says(site: Site) -> None:
    certificate, key = site.own
    options = {
        "cacertfile": str(site.authority.certificate),
        "certfile": certificate,
        "keyfile": key,
    }
    with client.Connection(parse_url(site.url("cacertfile=/nowhere"), options)) as line:
        assert line.login() == __version__


def test_who_is_not_trusted_is_named_with_the_cure(site: Site) -> None:
    certificate = site.stranger.certificate
    text = refused(site.url(f"cacertfile={certificate}"))
    assert "is not trusted" in text
    assert "option caCertFile names the authority" in text
    assert "is not trusted" in refused(site.url(""))  # the system's authorities
    unverified = site.mutual().split("&", 1)[1] + "&verify=verify_none"
    with client.Connection(parse_url(site.url(unverified))) as line:
        assert line.login() == __version__


def test_a_missing_certificate_of_ours_is_asked_for(site: Site) -> None:
    text = refused(site.url(f"cacertfile={site.authority.certificate}"))
    assert "options certFile, keyFile" in text


def test_tls_on_the_plain_port_is_recognised(site: Site) -> None:
    text = refused(site.url(site.mutual(), site.broker.amqp_port))
    assert "is this its TLS port" in text


def test_a_file_that_is_not_there_is_named() -> None:
    end = Endpoint("localhost", 1, "/", "guest", "guest", Tls("/no/such/ca.pem"))
    with pytest.raises(client.Refused, match=r"caCertFile /no/such/ca\.pem: .*No such file"):
        client.Connection(end)
