"""Real etcd, one member or three, each at a place with ports and a directory of its own."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.node.coordination.etcd_names import end_of, from_base64, to_base64
from tests.helpers.broker_process import HERE, BrokerFailed, Place, free_port

READY_S = 30.0


def missing_reason() -> str | None:
    """Why there is no etcd here and how to get one; None when there is one."""
    if shutil.which("etcd"):
        return None
    return "etcd is not installed (Debian: apt-get install etcd-server)"


class EtcdServer:
    """One member.  ``tls``: certificate, key and authority of its clients' side."""

    def __init__(
        self,
        directory: Path,
        name: str = "m1",
        tls: tuple[str, str, str] | None = None,
        place: Place = HERE,
    ) -> None:
        self.directory = directory
        self.place = place
        self.name = name
        self.tls = tls
        self.port = free_port()
        self.peer_port = free_port()
        self.metrics_port = free_port()
        self.members = [self]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.place.address}:{self.port}"

    @property
    def endpoints(self) -> tuple[str, ...]:
        return (self.endpoint,)

    @property
    def peer_url(self) -> str:
        return f"http://{self.place.address}:{self.peer_port}"

    @property
    def _metrics_url(self) -> str:
        return f"http://{self.place.address}:{self.metrics_port}"

    def command(self) -> list[str]:
        scheme = "https" if self.tls else "http"
        client = f"{scheme}://{self.endpoint}"
        peer = self.peer_url
        cluster = ",".join(f"{one.name}={one.peer_url}" for one in self.members)
        words = [
            *self.place.prefix,
            "etcd",
            "--name",
            self.name,
            "--data-dir",
            str(self.directory / self.name),
        ]
        words += ["--listen-client-urls", client, "--advertise-client-urls", client]
        words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        words += ["--initial-cluster", cluster, "--log-level", "warn", "--logger", "zap"]
        words += ["--listen-metrics-urls", self._metrics_url]
        # Milliseconds: a lost leader is noticed sooner than by default.
        words += ["--heartbeat-interval", "50", "--election-timeout", "500"]
        if self.tls:
            certificate, key, authority = self.tls
            words += ["--cert-file", certificate, "--key-file", key]
            words += ["--trusted-ca-file", authority, "--client-cert-auth"]
        return words

    def start(self) -> EtcdServer:
        self.launch()
        self.wait_until_healthy()
        return self

    def launch(self) -> None:
        assert self.process is None
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / f"{self.name}.out").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._metrics_url}/health", timeout=2) as answer:
                return bool(json.load(answer)["health"] == "true")
        except OSError:
            return False

    def wait_until_healthy(self) -> None:
        end_s = time.monotonic() + READY_S
        while not self.is_healthy():
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > end_s:
                said = (self.directory / f"{self.name}.out").read_text()
                raise BrokerFailed(f"etcd is not healthy:\n{said[-4000:]}")
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; may be called when it does not run."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def ask(
        self, path: str, body: Mapping[str, object], tls: ssl.SSLContext | None = None
    ) -> dict[str, object]:
        """The v3 gateway, without us."""
        url = f"{'http' if tls is None else 'https'}://{self.endpoint}/v3/{path}"
        data = json.dumps(body).encode()
        with urllib.request.urlopen(url, data=data, timeout=10, context=tls) as answer:
            said = json.load(answer)
        assert isinstance(said, dict)
        return said

    def put(self, key: str, value: str | bytes) -> None:
        """As any client of etcd may."""
        self.ask("kv/put", {"key": to_base64(key), "value": to_base64(value)})

    def rows(self, prefix: str) -> dict[str, str]:
        asked = {"key": to_base64(prefix), "range_end": to_base64(end_of(prefix))}
        found: Any = self.ask("kv/range", asked).get("kvs", [])
        return {from_base64(kv["key"]): from_base64(kv.get("value", "")) for kv in found}

    def delete(self, prefix: str) -> None:
        asked = {"key": to_base64(prefix), "range_end": to_base64(end_of(prefix))}
        self.ask("kv/deleterange", asked)

    def unseal(self, root: str) -> None:
        """As release 0.1 had a cluster's records: without checksums."""
        for key, stored in self.rows(root + "keys/").items():
            self.put(key, stored.partition(" ")[2])
        self.put(root + "format", "1")


class EtcdTrio:
    """Three members that are one etcd."""

    def __init__(self, directory: Path, places: Sequence[Place] = (HERE,) * 3) -> None:
        self.members = [
            EtcdServer(directory, f"m{number}", place=place)
            for number, place in enumerate(places, 1)
        ]
        for member in self.members:
            member.members = self.members

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def start(self) -> EtcdTrio:
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_healthy()
        return self

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def pause(self) -> None:
        """Those that run."""
        for member in self.members:
            if member.process is not None:
                member.pause()

    def resume(self) -> None:
        for member in self.members:
            if member.process is not None:
                member.resume()
