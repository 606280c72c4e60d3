"""The record of nsqd 1.3.0 and the cases belong together."""

from tests.conformance_nsq import record
from tests.conformance_nsq.runner import load_cases


def test_every_case_is_recorded_and_every_record_has_its_case() -> None:
    assert set(record.read()) == set(load_cases())


def test_no_record_holds_an_address_of_the_day() -> None:
    lines = [line for lines in record.read().values() for line in lines]
    assert lines
    assert not [line for line in lines if "127.0.0.1" in line]
