"""Where the nodes of a cluster agree: etcd over HTTP, or a store that one local process serves."""
