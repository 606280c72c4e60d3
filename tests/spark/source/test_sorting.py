"""Messages of claims go into the files of their tables, each once, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import compute as pc
from pyarrow import parquet

from penstock.spark.tables.conditions import WrongCondition, parse_condition
from pyspark_penstock import sorting
from pyspark_penstock.body_columns import FAULT, BodyDecoding, parse_body_columns
from pyspark_penstock.claims import Claim, claim_batch, claims_in
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.sorting import Part, Sorter
from pyspark_penstock.table_files import Draft, Layout, table_schema

COLUMNS = ("seq_id", "body", "routing_key", "priority", "enqueued_at", "headers")
DECODED = parse_body_columns("n long, c struct<city string, total decimal(10,2)>", COLUMNS)
EVERYTHING = table_schema(Layout(COLUMNS, decoded=DECODED, with_fault=True))


def messages(*rows: dict[str, Any]) -> pa.RecordBatch:
    numbered = [{"seq_id": n} | row for n, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(numbered, arrow_schema(COLUMNS))


def parts(tmp_path: Path, where: str | None, *, rest: bool = True) -> tuple[Part, ...]:
    whole = Layout(COLUMNS, decoded=DECODED, with_fault=True)
    faulty = Layout(COLUMNS, with_fault=True)
    found = [
        Part("quarantine", pc.field(FAULT).is_valid(), faulty, str(tmp_path / "quarantine")),
        Part("", parse_condition(where, EVERYTHING) if where else None, whole, str(tmp_path / "t")),
        Part("rest", None, whole, str(tmp_path / "rest")),
    ]
    return tuple(found if rest else found[:-1])


def sorted_into(tmp_path: Path, where: str | None, *, rest: bool = True) -> dict[str, list[int]]:
    sorter = Sorter(BodyDecoding(DECODED), parts(tmp_path, where, rest=rest), 3)
    sorter.add(
        messages(
            {"body": b'{"n": 1}', "routing_key": "eu.a"},
            {"body": b'{"n": "x"}', "routing_key": "eu.b"},
            {"body": b"{}", "routing_key": "us.a"},
            {"body": b'{"n": 4}'},
            {"body": b"no", "routing_key": "us.b"},
        )
    )
    found: dict[str, list[int]] = {}
    for draft in sorter.close():
        if draft.path:
            ids = parquet.read_table(draft.path)["seq_id"].to_pylist()
            found.setdefault(draft.part, []).extend(ids)
        else:
            found["left out"] = [draft.left_out]
    return found


def test_each_message_goes_to_the_first_table_that_takes_it(tmp_path: Path) -> None:
    assert sorted_into(tmp_path, "routing_key like 'eu.%'") == {
        "": [0],
        "quarantine": [1, 4],
        "rest": [2, 3],
        "left out": [0],
    }
    (bad,) = (tmp_path / "quarantine").glob("*.parquet")
    faults = parquet.read_table(bad)[FAULT].to_pylist()
    assert faults[0] == '/n is no long: "x"'
    assert "not JSON" in faults[1]


def test_what_no_table_takes_is_counted(tmp_path: Path) -> None:
    found = sorted_into(tmp_path, "n > 1", rest=False)
    assert found == {"": [3], "quarantine": [1, 4], "left out": [2]}


def test_without_a_condition_the_table_takes_all_that_is_not_at_fault(tmp_path: Path) -> None:
    found = sorted_into(tmp_path, None)
    assert found == {"": [0, 2, 3], "quarantine": [1, 4], "left out": [0]}


@given(st.lists(st.tuples(st.sampled_from(["eu.a", "us", None]), st.integers(0, 9) | st.none())))
def test_a_condition_and_its_opposite_share_all_messages(rows: list[tuple[Any, Any]]) -> None:
    condition = parse_condition(
        "routing_key like 'eu%' or not priority between 3 and 7", EVERYTHING
    )
    batch = messages(*({"routing_key": key, "priority": some} for key, some in rows))
    taken = set(batch.filter(condition)["seq_id"].to_pylist())
    assert taken == {
        n
        for n, (key, some) in enumerate(rows)
        if key == "eu.a" or (some is not None and not 3 <= some <= 7)
    }


def test_a_claim_becomes_drafts_and_its_holes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Claim] = []

    def read(_: object, claim: Claim) -> Iterator[Any]:
        asked.append(claim)
        yield messages({"seq_id": claim.start}, {"seq_id": claim.start + 1})

    monkeypatch.setattr(sorting, "read_claim", read)
    claim = Claim("orders", "inc", 10, 15, (1 << 64) - 3)
    rows = [tuple(row.values()) for row in claim_batch(claim).to_pylist()]
    part = Part("", None, Layout(COLUMNS), str(tmp_path))
    write = sorting.writing(None, BodyDecoding(), (part,), 0)  # type: ignore[arg-type]
    draft, left_out, end = (Draft(*row) for row in write(rows))
    assert asked == [claim] == claims_in(rows), "the token has 64 bits"
    assert (draft.messages, draft.holes, end.path, end.holes) == (2, 0, "", 3)
    assert left_out.left_out == 0


@pytest.mark.parametrize(
    "text, chosen",
    [
        ("headers.\"x-r\" = 'eu'", [0]),
        ("headers.\"x-r\" not in ('us', 'cn')", [0]),
        ("c.city = 'Köln' and c.total >= 7", [0]),
        ("c.total < 1.5", [1]),
        ("enqueued_at < '1970-01-01T00:00:01Z'", [0]),
        ("priority is null", [1, 2]),
        ("body like '{%'", [0, 1]),
        ("not (n <> 1)", [0]),
        ("true", [0, 1, 2]),
    ],
)
def test_conditions_on_columns_headers_and_parts_of_bodies(text: str, chosen: list[int]) -> None:
    first = b'{"n": 1, "c": {"city": "K\xc3\xb6ln", "total": 7}}'
    rows = messages(
        {"body": first, "headers": [("x-r", "eu")], "priority": 1, "enqueued_at": 0},
        {"body": b'{"n": 2, "c": {"total": 1.25}}', "headers": [("x-r", "us")]},
        {"body": b"no", "headers": None},
    )
    decoded = BodyDecoding(DECODED).decoder()(rows)
    assert decoded.filter(parse_condition(text, EVERYTHING))["seq_id"].to_pylist() == chosen


@pytest.mark.parametrize(
    "text, told",
    [
        ("region = 'eu'", "there is no column region; there are seq_id, body"),
        ("c.street = 'x'", "column c has no street"),
        ("c = 'x'", "name one of its parts"),
        ("priority = 'x'", "priority is int32, not 'x'"),
        ("priority = 1.5", "priority is int32"),
        ("enqueued_at > '2026-11-28'", "a time names its zone"),
        ("routing_key like '%eu'", "at the end of a string"),
        ("routing_key rlike 'eu'", "not understood at \"routing_key rlike 'eu'\""),
        ("c.total = 1.234", "c.total is decimal128(10, 2)"),
        ("", "not understood at 'its end'"),
    ],
)
def test_a_wrong_condition_is_refused_with_its_place(text: str, told: str) -> None:
    with pytest.raises(WrongCondition) as refused:
        parse_condition(text, EVERYTHING)
    assert told in str(refused.value)
