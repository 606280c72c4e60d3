"""A node's credit flow, made from its settings."""

from penstock.broker.rules.flow import Flow
from penstock.core.credit import CreditSpec
from penstock.core.errors import SettingInvalid
from penstock.settings.settings import Settings


def make_flow(settings: Settings) -> Flow:
    """Raises SettingInvalid where more would be granted than there may be."""
    return Flow(
        _spec("credit_flow", settings.credit_flow_initial, settings.credit_flow_more_after)
        if settings.credit_flow_initial > 0
        else None,
        _spec(
            "msg_store_credit",
            settings.msg_store_credit_initial,
            settings.msg_store_credit_more_after,
        ),
    )


def _spec(name: str, initial: int, more_after: int) -> CreditSpec:
    if more_after > initial:
        raise SettingInvalid(
            f"{name}_more_after = {more_after} is above {name}_initial = {initial}:"
            " a sender without credit would wait for ever"
        )
    return CreditSpec(initial, more_after)
