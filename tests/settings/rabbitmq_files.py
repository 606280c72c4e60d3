"""Settings of a text of RabbitMQ's configuration files."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.settings.rabbitmq_conf import translate
from penstock.settings.settings import Settings, load_settings


def load(text: str, **environment: str) -> Settings:
    return load_settings(None, environment, {}, "", [("x.conf", text)])


def values(text: str) -> Mapping[str, object]:
    return translate([("x.conf", text)]).values


def terms(text: str) -> Settings:
    return load_settings(None, {}, {}, "", [("x.config", text)])
