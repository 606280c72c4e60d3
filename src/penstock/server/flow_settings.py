"""A node's credit flow, made from its settings."""

from penstock.broker.flow import Flow
from penstock.core.credit import CreditSpec
from penstock.core.errors import SettingInvalid
from penstock.core.settings import Settings


def make_flow(settings: Settings) -> Flow:
    """Raises SettingInvalid where more would be granted than there may be."""
    enabled = settings.credit_flow_initial > 0
    flow = Flow(
        _credit(settings, "credit_flow") if enabled else CreditSpec(400, 200),
        _credit(settings, "msg_store_credit"),
    )
    flow.enabled = enabled
    return flow


def _credit(settings: Settings, name: str) -> CreditSpec:
    initial, more_after = (
        settings.value_of(f"{name}_{part}") for part in ("initial", "more_after")
    )
    assert isinstance(initial, int)
    assert isinstance(more_after, int)
    if more_after > initial:
        raise SettingInvalid(
            f"{name}_more_after = {more_after} is above {name}_initial = {initial}:"
            " whoever waited would wait for ever"
        )
    return CreditSpec(initial, more_after)
