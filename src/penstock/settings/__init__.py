"""Settings of a node: each is declared once, with kind, bounds, unit and text.

Sources are a TOML file, ``rabbitmq.conf`` or Erlang terms, environment variables and flags.
"""
