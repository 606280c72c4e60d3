"""What the gauge says of a process must be what the process says of itself."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time

import pytest

from penstock.client.procstat import ProcessGauge, ProcessGone

TICK_S = 0.011


def test_cpu_seconds_are_those_the_process_counts_itself() -> None:
    gauge = ProcessGauge(os.getpid(), tree=False)
    before = sum(gauge.cpu_s())
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    assert 0.1 - 2 * TICK_S <= sum(gauge.cpu_s()) - before <= 0.3


def test_the_peak_remembers_memory_that_was_given_back() -> None:
    gauge = ProcessGauge(os.getpid(), tree=False)
    start = gauge.sample_rss()
    # A mapping of its own: the allocator may have as much left over from other tests.
    with mmap.mmap(-1, 64 << 20) as ballast:
        ballast.write(b"x" * (64 << 20))
        assert gauge.sample_rss() - start > 50_000_000
    gauge.sample_rss()
    assert gauge.peak_rss_bytes - start > 50_000_000


def test_a_tree_counts_children_and_a_gone_process_is_an_error() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    alone = ProcessGauge(os.getpid(), tree=False)
    family = ProcessGauge(os.getpid(), tree=True)
    of_child = ProcessGauge(child.pid, tree=False)
    assert family.sample_rss() - alone.sample_rss() > of_child.sample_rss() / 2
    child.communicate(b"\n")
    with pytest.raises(ProcessGone):
        of_child.cpu_s()
    with pytest.raises(ProcessGone):
        of_child.sample_rss()
    family.cpu_s()
