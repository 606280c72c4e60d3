"""The event loop and its sockets: what every session runs on.

``loop`` reads ready sockets, ``turn`` works between reading and writing, ``session`` is what
both know of a protocol's session.
"""
