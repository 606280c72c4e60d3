"""``LinkInspector``: what the node tells about its shovels, to any thread; without node: none."""

Row = dict[str, object]


class LinkInspector:
    """Rows are RabbitMQ's, in the order in which their parameters came."""

    def rows(self) -> list[Row]:
        """The shovels that this node runs; the answer of ``/api/shovels``."""
        return []

    def restart(self, vhost: str, name: str) -> bool:
        """Connect that shovel anew; False: this node does not run it."""
        return False
