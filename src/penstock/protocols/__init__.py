"""The protocols clients and nodes speak, one package each: its codec, and its sessions.

A codec turns bytes into events and back: no socket, no clock, no loop; it knows only ``core``.  A
session joins a codec, one connection and the broker.  Packages of protocols do not know each other
except where ``.importlinter`` names it.
"""
