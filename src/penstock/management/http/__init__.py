"""What every endpoint stands on: log-in, lists, connections, browsers, OpenAPI."""
