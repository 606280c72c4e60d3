"""Uploads to S3: parts of an object, which appears whole when its upload is completed.

In: the address of a store and keys for it, as the environment has them or properties of the
``FileIO`` of pyiceberg.  Out: parts that the store has, and what completes their upload
(``told_of``), which another process may do: so a worker writes an object under its final name, and
the driver decides whether it ever appears.  An upload that is not completed stays hidden, and takes
room until it is aborted.

The address of each part is signed, its bytes are not: SHA-256 of all that is written would cost the
worker and the store a sixth of their time.  TLS, where the store has it, guards the bytes.
Addresses are secrets for the hour in which they are of use, so no error has one.
"""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

PART_BYTES: Final = 8 << 20
"""Of each part but an upload's last: S3 wants 5 MiB or more, some stores all of one size."""
TRIES: Final = 5
TIMEOUT_S: Final = 60.0
KNOWN: Final = {
    "s3.endpoint": "endpoint_url",
    "s3.region": "region_name",
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
}
"""Properties of pyiceberg, and what botocore calls them."""
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_SCHEMES: Final = ("s3", "s3a", "s3n")


def can_upload(url: str, properties: Mapping[str, str]) -> bool:
    """Is it S3, and does this module know all that the properties say of how to reach it?"""
    theirs = [name for name in properties if name.startswith(("s3.", "client."))]
    return url.partition("://")[0] in _SCHEMES and all(name in KNOWN for name in theirs)


class Uploads:
    """Of one bucket; of ``properties`` those of ``KNOWN`` count, the environment has the rest."""

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        self._bucket = _split(url)[0]
        given = {KNOWN[name]: value for name, value in properties.items() if name in KNOWN}
        around = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        self._client = _client(self._bucket, _key(given), _key(around))

    def begin(self, url: str) -> str:
        """Its id.  Raises OSError, as all of this class."""
        key = _split(url)[1]
        with _told_errors():
            made = self._client.create_multipart_upload(Bucket=self._bucket, Key=key)
        return str(made["UploadId"])

    def put_part(self, url: str, upload: str, number: int, data: memoryview) -> str:
        """Returns the part's ETag."""
        given = {"UploadId": upload, "PartNumber": number}
        return self._put("upload_part", _split(url)[1], given, data)

    def put_whole(self, url: str, data: memoryview) -> None:
        """An object of one piece, without an upload."""
        self._put("put_object", _split(url)[1], {}, data)

    def complete(self, url: str, told: str) -> bool:
        """``told``: ``told_of`` it.  False: there is no such upload, maybe as it was completed."""
        upload, etags = json.loads(told)
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        with _told_errors():
            try:
                self._client.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=_split(url)[1],
                    UploadId=upload,
                    MultipartUpload={"Parts": parts},
                )
            except self._client.exceptions.NoSuchUpload:
                return False
        return True

    def abort_below(self, url: str, name: "re.Pattern[str]") -> None:
        """Uploads to objects below that place with such a name.

        All of the bucket are listed: MinIO knows no prefix but a whole name.
        """
        prefix = _split(url)[1] + "/"
        with _told_errors():
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket):
                for one in page.get("Uploads", []):
                    place, _, last = one["Key"].rpartition("/")
                    if f"{place}/".startswith(prefix) and name.fullmatch(last):
                        self._client.abort_multipart_upload(
                            Bucket=self._bucket, Key=one["Key"], UploadId=one["UploadId"]
                        )

    def _put(self, method: str, key: str, given: Mapping[str, Any], data: memoryview) -> str:
        from urllib3.exceptions import HTTPError

        why = ""
        for again in range(TRIES):
            time.sleep(0.1 * (1 << again) if again else 0)
            with _told_errors():  # the address is signed anew: keys of a role may have changed
                address = self._client.generate_presigned_url(
                    method, Params={"Bucket": self._bucket, "Key": key, **given}
                )
            try:
                pool = _pool(_proxy_to(address))
                answer = pool.request("PUT", address, body=data, retries=False)
            except HTTPError as error:
                why = f"the store did not answer ({type(error).__name__})"
                continue
            if answer.status == 200:
                return str(answer.headers["ETag"])
            why = f"the store answered {answer.status}{_code_in(answer.data)}"
            if answer.status < 500:
                break
        raise OSError(f"s3://{self._bucket}/{key} was not written: {why}")


def told_of(upload: str, etags: list[str]) -> str:
    """What ``complete`` wants to know."""
    return json.dumps([upload, etags])


def _split(url: str) -> tuple[str, str]:
    bucket, _, key = url.partition("://")[2].partition("/")
    return bucket, key.rstrip("/")


def _code_in(answer: bytes) -> str:
    found = re.search(rb"<Code>([A-Za-z]+)</Code>", answer)
    return f" ({found[1].decode()})" if found else ""


@contextmanager
def _told_errors() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise OSError(str(error)) from None


def _proxy_to(address: str) -> str:
    """As the environment has it; "" = none."""
    to = urlsplit(address)
    return "" if proxy_bypass(to.hostname or "") else getproxies().get(to.scheme, "")


@lru_cache(maxsize=8)
def _pool(proxy: str) -> Any:
    """Connections to stores, of this process."""
    from urllib3 import PoolManager, ProxyManager, Timeout

    authorities = os.environ.get("AWS_CA_BUNDLE") or None
    given: Any = {"timeout": Timeout(TIMEOUT_S), "ca_certs": authorities}
    return ProxyManager(proxy, **given) if proxy else PoolManager(**given)


def _key(words: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(words.items()))


@lru_cache(maxsize=8)
def _client(
    bucket: str, given: tuple[tuple[str, str], ...], _around: tuple[tuple[str, str], ...]
) -> Any:
    """It takes half a second to make; it renews keys that end."""
    from botocore.config import Config
    from botocore.session import get_session
    from pyarrow.fs import resolve_s3_region

    words = dict(given)
    session = get_session()
    endpoint = words.get("endpoint_url") or _named(ENDPOINTS)
    region = words.get("region_name") or _named(REGIONS) or session.get_config_variable("region")
    words["region_name"] = region or ("us-east-1" if endpoint else resolve_s3_region(bucket))
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path" if endpoint else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"mode": "standard", "max_attempts": TRIES},
    )
    with _told_errors():
        return session.create_client("s3", config=config, **words)


def _named(names: tuple[str, ...]) -> str:
    return next(filter(None, map(os.environ.get, names)), "")
