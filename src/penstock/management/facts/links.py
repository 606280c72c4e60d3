"""``LinkInspector``: what the node tells about its links, to any thread; without node: none."""

Row = dict[str, object]


class LinkInspector:
    """Rows are RabbitMQ's, in the order in which the links came; without passwords."""

    def shovels(self) -> list[Row]:
        """Those that this node runs; the answer of ``/api/shovels``."""
        return []

    def restart_shovel(self, vhost: str, name: str) -> bool:
        """Connect that shovel anew; False: this node does not run it."""
        return False

    def federation_links(self) -> list[Row]:
        """Those that this node runs; the answer of ``/api/federation-links``."""
        return []

    def restart_federation_link(self, vhost: str, link_id: str) -> bool:
        """Connect that link anew; False: this node does not run it."""
        return False
