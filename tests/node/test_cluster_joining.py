"""How long a node that starts waits for the cluster."""

from __future__ import annotations

import pytest

from penstock.node.cluster.member import join_patience_s


@pytest.mark.parametrize("lease_ttl_s", [1, 3, 10, 11, 60, 600])
def test_joining_outlasts_a_former_life_and_says_whose_the_name_is(lease_ttl_s: int) -> None:
    """It once gave up after 20 s, whatever the lease: a killed node did not start again.

    After two leases another process has the name; etcd may take some seconds besides.
    """
    assert 10 <= join_patience_s(lease_ttl_s) - 2 * lease_ttl_s <= 30
