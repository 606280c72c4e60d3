"""Where a secret is written.

    file:/etc/penstock/guest.pass    in this file; white space at its ends does not count
    command:pass show broker         this command prints it; it is run without a shell
    encrypted:BASE64                 so, by ``config_passphrase`` (``encryption``)
    plain:file:x                     what follows, however it looks
    anything else                    itself

Settings that are secrets (``Secret`` in ``settings/kinds``) and passwords of commands are written
so.  They are read where they are used: at the start, and again when settings or certificates are.
"""

import shlex
import subprocess
from pathlib import Path
from typing import Final

from penstock.core.errors import SettingInvalid
from penstock.secrets.encryption import Encryption, WrongKey, text_of_term
from penstock.settings.kinds import ENCRYPTED, form_of
from penstock.settings.settings import Settings

PATIENCE_S: Final = 10
SIZE_MAX_BYTES: Final = 1 << 20


def secret_of(settings: Settings, key: str) -> str:
    """The secret of a setting; raises SettingInvalid, in which it is not."""
    return revealed(str(settings.value_of(key)), key, settings)


def revealing(settings: Settings, *keys: str) -> Settings:
    """The same settings with these secrets in the clear; raises SettingInvalid."""
    return settings.with_values({key: secret_of(settings, key) for key in keys}, "revealed")


def revealed(text: str, name: str, settings: Settings | None = None) -> str:
    """What ``text`` means, for the setting or option ``name``; raises SettingInvalid.

    ``settings``: those that say how values are encrypted; None = encrypted ones are refused.
    """
    form = form_of(text)
    where = text[len(form) :]
    if form == "file:":
        return _of_file(where, name)
    if form == "command:":
        return _of_command(where, name)
    if form == ENCRYPTED:
        return _of_encrypted(where, name, settings)
    return where


def _of_file(path: str, name: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(SIZE_MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingInvalid(f"{name} = 'file:{path}': {error}") from error
    if len(text) > SIZE_MAX_BYTES:
        raise SettingInvalid(f"{name} = 'file:{path}': it is larger than {SIZE_MAX_BYTES} bytes")
    return text.strip()


def _of_command(command: str, name: str) -> str:
    """Of the failure only its kind is said: what a command prints may be the secret."""
    words = [""]
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=PATIENCE_S,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        why = f"{words[0]} ended with {error.returncode}"
    except subprocess.TimeoutExpired:
        why = f"{words[0]} took more than {PATIENCE_S} s"
    except (OSError, ValueError, IndexError) as error:
        why = str(error)
    else:
        return done.stdout.strip()
    raise SettingInvalid(f"the command of {name} failed: {why}")


def _of_encrypted(text: str, name: str, settings: Settings | None) -> str:
    if settings is None:
        raise SettingInvalid(f"{name}: only the broker's settings can be encrypted")
    if not settings.config_passphrase:
        raise SettingInvalid(
            f"{name} is encrypted, and config_passphrase (config_entry_decoder.passphrase) is empty"
        )
    passphrase = revealed(settings.config_passphrase, "config_passphrase")
    encryption = Encryption(
        passphrase.encode(),
        settings.config_cipher,
        settings.config_hash,
        settings.config_iterations,
    )
    try:
        return text_of_term(encryption.decrypt(text))
    except WrongKey as error:
        raise SettingInvalid(f"{name} cannot be decrypted: {error}") from None
