"""The types that every package uses: the message, the errors, credit, clocks.

Imports nothing of ours, knows no protocol and no disk.
"""
