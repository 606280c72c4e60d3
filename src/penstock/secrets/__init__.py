"""Passwords, keys and texts that hold them: where they are written, and what they say there.

sources.py      text of a setting or option ─► the secret: a file, a command, an encrypted text
encryption.py   RabbitMQ's encrypted values of a configuration
modes.py        which files have secrets, and which of them are open to other accounts
hardening.py    what of a configuration falls short of a hardened one
"""
