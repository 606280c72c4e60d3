"""One package for each protocol; ``node/sessions.py`` chooses it by listener and first bytes.

A codec turns bytes into events and back: no socket, no clock, no loop; it knows only ``core``.  A
session joins a codec, one connection and the broker.  Packages of protocols do not know each other
except where ``.importlinter`` names it.
"""
