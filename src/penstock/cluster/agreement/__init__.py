"""Agreement of the nodes of a cluster: membership, metadata, proposals, placement."""
