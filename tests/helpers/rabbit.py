"""The real RabbitMQ as a private process: the yardstick of conformance tests and benchmarks.

Every file of the node lies in the given directory; its name server (epmd) is its own too,
so that nothing is left behind and several nodes may run side by side.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Self

from tests.helpers.broker_process import BrokerProcess, free_port

# Debian's /usr/sbin/rabbitmq-server insists on the user rabbitmq; the script behind it does not.
SCRIPTS = (
    os.environ.get("PENSTOCK_RABBITMQ_SERVER", ""),  # another release than the one installed
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "rabbitmq-server",
)

HASH_EXCHANGE = "rabbitmq_consistent_hash_exchange"
"""Adds an exchange type, and changes nothing else."""

LOCAL_DISTRIBUTION = "-kernel inet_dist_use_interface {127,0,0,1}"
"""Other nodes are heard on this machine only."""


def find_script() -> str | None:
    for script in SCRIPTS:
        found = shutil.which(script)
        if found:
            return found
    return None


def missing_reason() -> str | None:
    """Why there is no RabbitMQ here and how to get one; None when there is one."""
    if find_script() and shutil.which("epmd"):
        return None
    return "RabbitMQ is not installed (Debian: apt-get install rabbitmq-server)"


class RabbitServer(BrokerProcess):
    """One RabbitMQ node with default settings, guest/guest, on 127.0.0.1."""

    name = "rabbitmq"
    stop_timeout_s = 60.0

    def __init__(
        self,
        directory: Path | None = None,
        erl_args: str = "",
        config: str = "",
        ready_timeout_s: float = 90.0,
        plugins: tuple[str, ...] = (HASH_EXCHANGE,),
    ) -> None:
        super().__init__(directory, ready_timeout_s)
        self.epmd_port = free_port()
        self.distribution_port = free_port()
        self._erl_args = erl_args
        self._config = config
        self._plugins = plugins
        self._epmd: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        script = find_script()
        assert script is not None, missing_reason()
        return [script]

    def environment(self) -> dict[str, str]:
        home = str(self.directory)
        return {
            "HOME": home,
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_NODENAME": f"penstock-test-{self.amqp_port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.amqp_port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_CONFIG_FILE": f"{home}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{home}/none",
            "RABBITMQ_MNESIA_BASE": f"{home}/mnesia",
            "RABBITMQ_LOG_BASE": f"{home}/log",
            "RABBITMQ_PID_FILE": f"{home}/pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/enabled_plugins",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": self._erl_args,
        }

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "rabbitmq.conf").write_text(self._config)
        (self.directory / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")
        self._start_epmd()
        return super().start()

    def is_ready(self) -> bool:
        if "completed with" not in self.output():
            return False
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.amqp_port)) == 0

    def kill(self) -> None:
        try:
            super().kill()
        finally:
            self._stop_epmd()

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self._stop_epmd()

    def beam_pid(self) -> int:
        """The Erlang machine itself; ``pid`` is the shell script around it."""
        listing = subprocess.run(
            ["ps", "-o", "pid=,comm=", "-g", str(self.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        for line in listing.stdout.splitlines():
            number, command = line.split(None, 1)
            if command.startswith("beam"):
                return int(number)
        raise AssertionError(f"no Erlang machine among:\n{listing.stdout}")

    def release(self) -> str:
        """As it says at its start."""
        found = re.search(r"RabbitMQ (\d+\.\d+\.\d+)", self.output())
        assert found is not None, self.output()
        return found[1]

    def _judge_exit(self, code: int) -> None:
        # The script around the Erlang machine answers SIGTERM with 143, which is 128 + 15.
        if code not in {0, 143}:
            super()._judge_exit(code)

    def _start_epmd(self) -> None:
        if self._epmd is not None:
            return
        self._epmd = subprocess.Popen(
            ["epmd", "-address", "127.0.0.1", "-port", str(self.epmd_port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _stop_epmd(self) -> None:
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None


class ManagedRabbit(RabbitServer):
    """With its management API, whose counts are at most half a second old, and more plug-ins."""

    def __init__(self, directory: Path, plugins: tuple[str, ...] = (), config: str = "") -> None:
        self.http_port = free_port()
        super().__init__(
            directory,
            LOCAL_DISTRIBUTION,
            config=f"{config}management.tcp.port = {self.http_port}\n"
            "management.tcp.ip = 127.0.0.1\n"
            "collect_statistics_interval = 500\n",
            plugins=("rabbitmq_management", *plugins),
        )

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"
