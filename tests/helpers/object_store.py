"""An S3 server as a process: nanio, which keeps buckets as directories and checks signatures.

A test may kill it and start it again; what it has confirmed is in its directory.
``PENSTOCK_S3_SERVER`` is the command of another server, with ``{port}`` and ``{directory}`` in it;
it finds both keys in the environment, under the names of versitygw and of MinIO.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Self
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.helpers.broker_process import POLL_S, free_port
from tests.helpers.live_broker import REPOSITORY

ACCESS_KEY = "canary-key-of-the-store"
SECRET_KEY = "canary-secret-of-the-store"
BUCKET = "lake"
START_TIMEOUT_S = 60
OTHER_SERVER = os.environ.get("PENSTOCK_S3_SERVER", "").split()


class ObjectStore:
    """One bucket; its objects are files of ``objects``."""

    def __init__(self, directory: Path, *, careless: bool = False) -> None:
        """``careless``: it passes over ``If-None-Match``."""
        if not OTHER_SERVER and importlib.util.find_spec("nanio") is None:
            pytest.skip("no S3 server: pip install nanio, or make deps-spark")
        self._directory = directory
        self._careless = careless
        self.objects = directory / BUCKET
        self.objects.mkdir(parents=True)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """For a catalog of pyiceberg; the keys are in the environment (``environment``)."""
        return {"s3.endpoint": f"http://127.0.0.1:{self._port}", "s3.region": "us-east-1"}

    @property
    def keys(self) -> tuple[str, str]:
        """The access key and its secret."""
        return ACCESS_KEY, SECRET_KEY

    @property
    def environment(self) -> dict[str, str]:
        """For clients of the store."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_ENDPOINT_URL": self.properties["s3.endpoint"],
            "AWS_REGION": self.properties["s3.region"],
            "AWS_ALLOW_HTTP": "true",  # wanted by deltalake
            # nanio 0.1.7 takes a checksum behind the body for a part of the body.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        }

    def start(self) -> None:
        directory = str(self._directory)
        command = [sys.executable, "-m", "tests.helpers.s3_server", directory, str(self._port)]
        if self._careless:
            command.append("careless")
        elif OTHER_SERVER:
            command = [word.format(port=self._port, directory=directory) for word in OTHER_SERVER]
        keys = {"NANIO_ACCESS_KEY": ACCESS_KEY, "NANIO_SECRET_KEY": SECRET_KEY}
        keys |= {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        keys |= {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY}
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, env=os.environ | keys, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(POLL_S)
        if OTHER_SERVER:
            self._make_bucket()

    def _make_bucket(self) -> None:
        from pyarrow.fs import S3FileSystem

        key, secret = self.keys
        endpoint = self.properties["s3.endpoint"]
        S3FileSystem(
            access_key=key,
            secret_key=secret,
            region=self.properties["s3.region"],
            endpoint_override=endpoint,
            allow_bucket_creation=True,
        ).create_dir(BUCKET)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            urlopen(self.properties["s3.endpoint"], timeout=5).close()
        except HTTPError:
            return True  # it wants a signature
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
