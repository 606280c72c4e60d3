"""OAuth 2 with its noise: key files, the key sets of providers, the backend of the chain.

    fetching.py  ``KeySource``: the keys of one provider, fetched and kept
    backend.py   ``OauthBackend``: a password that is a token ─► an account

What a token means is in ``broker/oauth``.
"""
