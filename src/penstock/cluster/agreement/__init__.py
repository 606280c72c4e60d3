"""What the nodes of a cluster agree on: membership, metadata, proposals, placement."""
