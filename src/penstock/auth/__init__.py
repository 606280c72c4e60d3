"""Backends of users that ask servers: on a thread and event loop of their own, never the data loop.

    data loop ─► Backend.authenticate, Judge.check ─► Inquiry, Undecided ─┐
    loop of this package: request ─► answer ─► the inquiry is done ─► wake the data loop

What a backend promises is in ``broker/rules/judges.py``; ``node/auth_backends.py`` makes the chain.
"""
