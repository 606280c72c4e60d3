"""The words every room uses: the message, the errors, the settings.

Imports nothing of ours, knows no protocol and no disk.
"""
