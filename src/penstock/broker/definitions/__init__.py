"""Definitions in RabbitMQ's JSON: export and import."""
