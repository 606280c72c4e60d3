"""A node's part in a cluster: what the quiet package ``cluster`` needs of loop, links and clock."""
