"""Endpoints of nodes and the cluster: state, health checks, and what operators do to them."""
