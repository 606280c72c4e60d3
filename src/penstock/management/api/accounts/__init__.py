"""Endpoints of users: their rights, their limits, and the web UI's log-in."""
