"""The protocol between the nodes of a cluster: connections, links, requests about queues."""
