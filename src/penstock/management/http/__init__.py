"""The base of every endpoint: log-in, lists, connections, browsers, OpenAPI."""
