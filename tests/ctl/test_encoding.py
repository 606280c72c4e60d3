"""``penstockctl encode`` and ``decode``: without a node, and with what RabbitMQ has encoded."""

from __future__ import annotations

import io

import pytest

from penstock.ctl.main import run

# RabbitMQ 3.10.8: rabbitmqctl encode '<<"canary">>' pass
THEIRS = "bggYTLS47vgtfZGsS0xtMihyqwPj454yq4oD5Zdu4S3oISVPfLJrPtiE9K8rUq2g"


def said(*line: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = run(line, out, err, {})
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    "written", [THEIRS, f"encrypted:{THEIRS}", f'{{encrypted, <<"{THEIRS}">>}}']
)
def test_what_rabbitmq_encoded_is_decoded(written: str) -> None:
    assert said("decode", written, "pass") == (0, 'Decrypting value...\n<<"canary">>\n', "")
    code, _, err = said("decode", written, "wrong")
    assert code == 69
    assert "Failed to decrypt the value" in err


def test_what_is_encoded_is_decoded_by_the_same_words_only() -> None:
    how = ("--cipher", "aes_256_cbc", "--hash", "sha512", "--iterations", "9")
    code, out, _ = said("-q", "encode", "secret", "pass", *how)
    assert (code, out.startswith('{encrypted,<<"')) == (0, True)
    assert said("-q", "decode", out.strip(), "pass", *how) == (0, "secret\n", "")
    assert said("-q", "decode", out.strip(), "pass")[0] == 69
    assert out != said("-q", "encode", "secret", "pass", *how)[1], "the salt is new each time"


def test_the_passphrase_may_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pass\n"))
    code, out, _ = said("decode", THEIRS)
    assert (code, out.splitlines()[-1]) == (0, '<<"canary">>')
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert said("encode", "x") == (
        69,
        "Encrypting value ...\nPassphrase: \n",
        "Error:\nnot_enough_args\n",
    )


@pytest.mark.parametrize(
    "line, code, why",
    [
        (("encode", "x", "p", "--cipher", "rc4"), 65, "The requested cipher is not supported"),
        (("encode", "x", "p", "--hash", "md4"), 65, "The requested hash is not supported"),
        (("decode", "x", "p", "--iterations", "0"), 65, "iterations is incorrect"),
        (("encode", "[1,2]", "p"), 69, "only texts are encrypted"),
        (("encode",), 64, "not enough arguments"),
    ],
)
def test_what_is_not_done_is_said(line: tuple[str, ...], code: int, why: str) -> None:
    found = said(*line)
    assert found[0] == code
    assert why in found[2]


def test_ciphers_and_hashes_are_listed() -> None:
    assert said("-q", "list_ciphers")[1] == "[aes_128_cbc,aes_192_cbc,aes_256_cbc]\n"
    assert said("-q", "list_hashes")[1] == "[sha,sha224,sha256,sha384,sha512]\n"
