"""Settings: one declaration per key, four sources, and errors that say what to do."""

import functools
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.capacity import DiskLimit, MemoryLimit
from penstock.core.errors import SettingInvalid
from penstock.settings.entry import RULE
from penstock.settings.kinds import (
    Boolean,
    FreeDisk,
    Integer,
    MemoryWatermark,
    NameList,
    Number,
    Setting,
    Shares,
    Text,
    Value,
)
from penstock.settings.secrets import DIRECTORIES, LINKS
from penstock.settings.settings import DECLARED, OTHER_VARIABLES, Settings, load_settings
from penstock.settings.tls import OVERRIDES, SNI

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("file", "environment", "flag")
PLAIN = st.text("abcdefgh-/._é", min_size=1, max_size=20)
ENTRIES = {
    DIRECTORIES: ("/etc", "/etc/penstock/links"),
    LINKS: ("ann@h=file:x", "bob@h.example=command:y z"),
    SNI: ("a.example=c.pem", "*.b.example=c.pem:k.pem"),
    OVERRIDES: ("certfile=c.pem", "verify=verify_peer", "depth=3"),
    RULE: ("amqp allow 10.0.0.0/8", "* deny ::1", "user:ann deny 192.0.2.1"),
}


def value_of_kind(setting: Setting) -> st.SearchStrategy[Value]:
    if isinstance(setting, Integer):
        return st.integers(setting.minimum, setting.maximum)
    if isinstance(setting, Number):
        return st.integers(0, 10 * int(setting.maximum)).map(lambda number: number / 10)
    if isinstance(setting, MemoryWatermark):
        return st.sampled_from(["0", "0.25", "1", "2GB", "1000000"])
    if isinstance(setting, FreeDisk):
        return st.sampled_from(["auto", "0", "50MB", "mem_relative 1.5", "1TiB"])
    if isinstance(setting, Boolean):
        return st.booleans()
    if isinstance(setting, NameList):
        known = setting.choices or ENTRIES.get(setting.form)
        names = st.sampled_from(known) if known else PLAIN
        return st.lists(names, max_size=3).map(tuple)
    if isinstance(setting, Shares):
        return st.lists(st.sampled_from(["0.5", "0.99", "1"]), max_size=3).map(tuple)
    assert isinstance(setting, Text)
    return st.sampled_from(setting.choices) if setting.choices else PLAIN


def as_toml(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{name}"' for name in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def as_text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


@st.composite
def given_in_sources(draw: st.DrawFn) -> dict[str, dict[str, Value]]:
    """For each source, the keys it sets and the values it gives them."""
    return {
        source: {
            key: draw(value_of_kind(setting))
            for key, setting in DECLARED.items()
            if draw(st.booleans())
        }
        for source in SOURCES
    }


@given(given_in_sources())
def test_later_source_wins_for_every_key(given_values: dict[str, dict[str, Value]]) -> None:
    settings = load_settings(
        "\n".join(f"{key} = {as_toml(value)}" for key, value in given_values["file"].items()),
        {
            DECLARED[key].environment_name: as_text(value)
            for key, value in given_values["environment"].items()
        },
        {key: as_text(value) for key, value in given_values["flag"].items()},
    )
    derives = settings.value_of("port_offset") != 0 or settings.value_of("nsq") is False
    for key, setting in DECLARED.items():
        if derives and key.endswith("_port"):
            continue  # see below
        expected, source = setting.default, "default"
        for name in SOURCES:
            if key in given_values[name]:
                expected, source = given_values[name][key], name
        assert settings.value_of(key) == expected
        assert settings.source_of(key) == source


def test_an_offset_moves_the_ports_that_no_source_names() -> None:
    settings = load_settings("amqp_port = 6000", {"PENSTOCK_PORT_OFFSET": "100"}, {})
    ports = {key: settings.value_of(key) for key in DECLARED if key.endswith("_port")}
    assert ports.pop("amqp_port") == 6000
    assert settings.source_of("http_port") == "default, moved by port_offset"
    for key, port in ports.items():
        default = DECLARED[key].default
        assert port == (default and default + 100), key  # type: ignore[operator]


def test_the_largest_offset_is_that_of_all_ports() -> None:
    most = str(DECLARED["port_offset"].maximum)  # type: ignore[attr-defined]
    settings = load_settings(None, {}, {"port_offset": most})
    for key, setting in DECLARED.items():
        assert setting.within_bounds(settings.value_of(key)), key


def test_one_word_closes_the_ports_of_nsq() -> None:
    settings = load_settings("nsq = false\nnsq_port = 4151\nport_offset = 1", {}, {})
    for key in DECLARED:
        if key.startswith("nsq") and key.endswith("_port"):
            assert (settings.value_of(key), settings.source_of(key)) == (0, "nsq is false")
    assert settings.value_of("amqp_port") == 5673


def test_defaults_obey_their_own_bounds() -> None:
    settings = load_settings(None, {}, {})
    for key, setting in DECLARED.items():
        assert settings.value_of(key) == setting.default
        assert setting.within_bounds(setting.default), key


@pytest.mark.parametrize("key", DECLARED)
def test_every_key_has_all_its_faces(key: str) -> None:
    setting = DECLARED[key]
    assert setting.key == key
    assert setting.environment_name == "PENSTOCK_" + key.upper()
    assert setting.flag == "--" + key.replace("_", "-")
    assert setting.doc.endswith(".")
    assert setting.environment_name not in OTHER_VARIABLES
    if isinstance(setting, Integer) and setting.unit and key != "frame_max":
        unit = setting.unit.replace("per second", "per_s")
        assert key.endswith("_" + unit), "units stand last in the name"


@pytest.mark.parametrize(
    "file_text, environment, flags, words",
    [
        ("amqp_prt = 1", {}, {}, ["file", "'amqp_prt'", "'amqp_port'"]),
        ("", {"PENSTOCK_AMPQ_PORT": "1"}, {}, ["environment", "'PENSTOCK_AMQP_PORT'"]),
        ("", {"PENSTOCK_amqp_port": "1"}, {}, ["environment", "'PENSTOCK_AMQP_PORT'"]),
        ("", {}, {"frame_maxx": "1"}, ["flag", "'--frame-maxx'", "'--frame-max'"]),
        ("[x]\nport = 1", {}, {}, ["file", "'x'", "amqp_port, http_port"]),
        ("amqp_port = true", {}, {}, ["file", "amqp_port = True", "from 0 to 65535"]),
        ('amqp_port = "5672"', {}, {}, ["file", "'5672'", "a whole number"]),
        ("amqp_port = 65536", {}, {}, ["file", "65536", "65535"]),
        ("bind = 1", {}, {}, ["file", "bind = 1", "text"]),
        ('bind = ""', {}, {}, ["file", "1 to 255 bytes"]),
        ('loopback_users = "guest"', {}, {}, ["file", "array in the file"]),
        ("loopback_users = [1]", {}, {}, ["file", "array in the file"]),
        ("vm_memory_high_watermark = -0.5", {}, {}, ["file", "a share from 0 to 1"]),
        ("vm_memory_high_watermark = 1.5", {}, {}, ["file", "a share from 0 to 1"]),
        ("vm_memory_high_watermark = true", {}, {}, ["file", "a share from 0 to 1"]),
        ("", {}, {"vm_memory_high_watermark": "3 GB"}, ["flag", "256MiB"]),
        ("", {}, {"vm_memory_high_watermark_paging_ratio": "101"}, ["flag", "0 to 100"]),
        ("", {}, {"disk_free_limit": "relative 1"}, ["flag", "mem_relative 1.0"]),
        ('disk_free_limit = "mem_relative"', {}, {}, ["file", "mem_relative 1.0"]),
        ("", {"PENSTOCK_LOOPBACK_USERS": "a,,b"}, {}, ["environment", "'a,,b'"]),
        ("", {"PENSTOCK_FRAME_MAX": "4095"}, {}, ["PENSTOCK_FRAME_MAX = '4095'", "4096"]),
        ("", {"PENSTOCK_HTTP_PORT": "1e3"}, {}, ["environment", "whole number"]),
        ("", {"PENSTOCK_HTTP_PORT": "٣"}, {}, ["environment", "whole number"]),
        ("", {"PENSTOCK_HTTP_PORT": ""}, {}, ["environment", "whole number"]),
        ("", {}, {"log_level": "loud"}, ["flag", "--log-level", "debug, info, warning, error"]),
        ("", {}, {"bind": "a\0b"}, ["flag", "NUL"]),
        ('ssl_fail_if_no_peer_cert = "true"', {}, {}, ["file", "allowed: true, false"]),
        ("", {"PENSTOCK_SSL_FAIL_IF_NO_PEER_CERT": "yes"}, {}, ["'yes'", "true, false"]),
        ('proxy_protocol = ["http"]', {}, {}, ["file", "'http'", "amqp and amqp/ssl"]),
        ("nsq_e2e_processing_latency_percentiles = 0.5", {}, {}, ["file", "above 0 and up to 1"]),
        ("nsq_e2e_processing_latency_percentiles = [true]", {}, {}, ["file", "up to 1"]),
        ("", {}, {"nsq_e2e_processing_latency_percentiles": "0.5,0"}, ["flag", "up to 1"]),
        ("", {}, {"nsq_e2e_processing_latency_percentiles": "99"}, ["flag", "up to 1"]),
        ("amqp_port = ", {}, {}, ["file: not TOML", "Invalid value"]),
    ],
)
def test_what_is_wrong_is_said(
    file_text: str, environment: dict[str, str], flags: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(SettingInvalid) as caught:
        load_settings(file_text, environment, flags)
    for word in words:
        assert word in str(caught.value)


def test_password_is_not_repeated_in_the_error() -> None:
    with pytest.raises(SettingInvalid) as caught:
        load_settings("", {"PENSTOCK_DEFAULT_PASS": "s3cret" * 1000}, {})
    assert "s3cret" not in str(caught.value)
    assert "PENSTOCK_DEFAULT_PASS" in str(caught.value)


def test_the_file_is_named_in_its_errors_and_remembered() -> None:
    with pytest.raises(SettingInvalid, match=r"^file conf/p\.toml: bind = 1;"):
        load_settings("bind = 1", {}, {}, "conf/p.toml")
    assert load_settings("", {}, {}, "conf/p.toml").file_name == "conf/p.toml"


def test_a_wrong_lower_source_is_refused_even_when_overridden() -> None:
    with pytest.raises(SettingInvalid, match="file: amqp_port"):
        load_settings("amqp_port = -1", {}, {"amqp_port": "5"})


def test_foreign_variables_are_left_alone_and_reported() -> None:
    kubernetes = {
        "PENSTOCK_PORT": "tcp://10.0.0.1:5672",
        "PENSTOCK_PORT_5672_TCP_ADDR": "10.0.0.1",
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_SERVICE_PORT_AMQP": "5672",
    }
    known = dict.fromkeys(OTHER_VARIABLES, "x")
    settings = load_settings(None, {**kubernetes, **known, "PENSTOCK_COLOUR": "x", "PATH": "/"}, {})
    assert settings.ignored_environment == ("PENSTOCK_COLOUR",)
    assert settings.amqp_port == 5672


def test_choosing_the_data_dir_changes_nothing_else() -> None:
    before = load_settings("frame_max = 8192", {"PENSTOCK_COLOUR": ""}, {"bind": "::1"})
    after = before.with_data_dir("/somewhere", "a good place")
    assert after.data_dir == "/somewhere"
    assert after.source_of("data_dir") == "a good place"
    assert before.data_dir == ""
    for key in DECLARED.keys() - {"data_dir"}:
        assert getattr(after, key) == getattr(before, key)
        assert after.source_of(key) == before.source_of(key)
    assert after.ignored_environment == before.ignored_environment


def test_settings_are_typed() -> None:
    settings: Settings = load_settings(None, {}, {})
    port: int = settings.amqp_port
    users: tuple[str, ...] = settings.loopback_users
    assert (port, users) == (5672, ("guest",))


def test_the_reference_page_is_fresh_and_its_example_loads() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "gen_settings_doc.py"))
    assert tool["main"](["--check"]) == 0, "run python tools/gen_settings_doc.py"
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    assert load_settings(example, {}, {}).bind == tomllib.loads(example)["bind"] == "0.0.0.0"
    for key, setting in DECLARED.items():
        for face in (f"## {key}\n", setting.environment_name, setting.flag, setting.doc):
            assert face in page


@functools.cache
def used_names() -> set[str]:
    """What the program reads of its settings, or names in the table of listeners."""
    names: set[str] = set()
    for path in (ROOT / "src" / "penstock").rglob("*.py"):
        if path.relative_to(ROOT).as_posix() not in DECLARING:
            read = r'"(\w+)"' if path.name == TABLE else r'settings(?:\.|, ")(\w+)'
            names.update(re.findall(read, path.read_text(encoding="utf-8")))
    return names


TABLE = "listener_table.py"
DECLARING = ("src/penstock/settings/settings.py", "src/penstock/management/start_screen.py")


@pytest.mark.parametrize("key", DECLARED)
def test_every_setting_is_used_by_the_program(key: str) -> None:
    """A setting that is read by nobody but the start screen would be a lie."""
    assert key in used_names()


def test_limits_are_read_as_they_are_meant() -> None:
    settings = load_settings("vm_memory_high_watermark = 0.25\ndisk_free_limit = 1000", {}, {})
    assert settings.vm_memory_high_watermark == MemoryLimit(0.25)
    assert settings.disk_free_limit == DiskLimit(1000)
    settings = load_settings(
        'vm_memory_high_watermark = "2GiB"', {}, {"disk_free_limit": "mem_relative 1.5"}
    )
    assert settings.vm_memory_high_watermark == MemoryLimit(0.0, 2 << 30)
    assert settings.disk_free_limit == DiskLimit(-1, 1.5)
    assert settings.vm_memory_high_watermark_paging_ratio == 0.5


def test_shares_are_read_as_numbers() -> None:
    file = "nsq_e2e_processing_latency_percentiles = [1.0, 0.99]"
    assert load_settings(file, {}, {}).nsq_e2e_processing_latency_percentiles == (1.0, 0.99)
    flags = {"nsq_e2e_processing_latency_percentiles": "0.95, 0.5"}
    assert load_settings(file, {}, flags).nsq_e2e_processing_latency_percentiles == (0.95, 0.5)
