"""``Backends``: makes the backends that ``auth_backends`` names, and the chain of their order.

    auth_backends = ["internal", "http", "http/internal"]

A pair has a backend for log-ins and one for rights; ``cache`` stands for ``auth_cache_backend``,
with the answers of an HTTP server kept for a time.
"""

import ssl
from collections.abc import Callable
from typing import Final

from penstock.auth.asking import AskingLoop
from penstock.broker.rules.judges import Backend
from penstock.broker.rules.log_ins import INTERNAL, INTERNAL_LOOPBACK, InternalBackend, Link, LogIns
from penstock.core.errors import SettingInvalid
from penstock.secrets.sources import secret_of
from penstock.settings.settings import Settings

CACHE: Final = "cache"
HTTP: Final = "http"
OAUTH2: Final = "oauth2"


class Backends:
    """Of one node, each made once; the constructor forms the chain, or raises SettingInvalid."""

    def __init__(self, settings: Settings, users: LogIns, wake: Callable[[], None]) -> None:
        self._settings = settings
        self.asking: Final = AskingLoop(wake)
        self._made: dict[tuple[str, bool], Backend] = {}
        self._makers: dict[str, Callable[[bool], Backend]] = {
            INTERNAL: lambda _cached: InternalBackend(users.users, users.passwords),
            INTERNAL_LOOPBACK: lambda _cached: InternalBackend(users.users, users.passwords, True),
            HTTP: self._http,
            OAUTH2: lambda _cached: self._oauth2(),
        }
        """By name; takes whether answers of servers are kept."""
        if not settings.auth_backends:
            raise SettingInvalid("auth_backends names no backend: no client could log in")
        users.form([self._link(entry, False) for entry in settings.auth_backends])

    def _link(self, entry: str, cached: bool) -> Link:
        if entry == CACHE and not cached:
            return self._link(self._settings.auth_cache_backend, True)
        authn, _, authz = entry.partition("/")
        made = self._backend(authn, cached)
        return Link(made, self._backend(authz, cached) if authz else made)

    def _backend(self, name: str, cached: bool) -> Backend:
        if name == CACHE and not cached:
            name, cached = self._settings.auth_cache_backend, True
        place = (name, cached)
        if place not in self._made:
            maker = self._makers.get(name)
            if maker is None:
                raise SettingInvalid(
                    f"auth_backends: {name!r} is no backend of users;"
                    f" there are {', '.join([*self._makers, CACHE])}"
                )
            self._made[place] = maker(cached)
        return self._made[place]

    def _oauth2(self) -> Backend:
        setting = secret_of(self._settings, "auth_oauth2")
        if not setting:
            raise SettingInvalid("auth_backends names oauth2, but auth_oauth2 is empty")
        try:
            # The packages of tokens are loaded by those that take some.
            from penstock.auth.oauth2.backend import OauthBackend  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise SettingInvalid(
                f"auth_backends: oauth2 needs the package {error.name}:"
                " pip install 'penstock-broker[oauth2]'"
            ) from error
        return OauthBackend(setting, self.asking.run, self.asking.wake)

    def _http(self, cached: bool) -> Backend:
        # aiohttp costs a third of a second to import: only a node that asks a server pays for it.
        from penstock.auth.http_backend import (  # noqa: PLC0415
            AnswerCache,
            HttpBackend,
            HttpOptions,
            Paths,
        )

        settings = self._settings
        paths = Paths(
            settings.auth_http_user_path,
            settings.auth_http_vhost_path,
            settings.auth_http_resource_path,
            settings.auth_http_topic_path,
        )
        options = HttpOptions(
            paths,
            settings.auth_http_method,
            settings.auth_http_request_timeout_ms,
            settings.auth_http_connection_timeout_ms,
            settings.auth_http_disclosure,
            settings.auth_http_recheck_s * 1000,
            _tls(settings, paths),
            settings.auth_http_ssl_server_name,
        )
        cache = AnswerCache(settings.auth_cache_ttl_ms, settings.auth_cache_refusals)
        return HttpBackend(options, self.asking, cache if cached else None)


def _tls(settings: Settings, paths: tuple[str, ...]) -> ssl.SSLContext | None:
    """None: all paths are plain HTTP.  Raises SettingInvalid for a file that cannot be used."""
    if not any(path.startswith("https:") for path in paths):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.auth_http_ssl_cacertfile or None)
        if settings.auth_http_ssl_certfile:
            context.load_cert_chain(
                settings.auth_http_ssl_certfile,
                settings.auth_http_ssl_keyfile or None,
                secret_of(settings, "auth_http_ssl_password") or None,
            )
    except OSError as error:  # ssl.SSLError is one
        raise SettingInvalid(f"auth_http_ssl: a file cannot be used: {error}") from error
    if settings.auth_http_ssl_verify == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
