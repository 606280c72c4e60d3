"""OAuth 2: a JSON web token as password, and the user, tags and rights that it grants.

    servers.py   the setting ``auth_oauth2``: resource servers and providers of tokens
    tokens.py    bytes of a token ─► header, claims, signature, within bounds; times, issuer
    keys.py      public keys of a provider, and the check of a signature
    claims.py    claims ─► user name and scopes
    scopes.py    scopes ─► tags, and what may be done in a virtual host
    sign_on.py   the setting ``management_oauth``: how the web UI's users get tokens
    verifying.py all of it in order: a token and the time ─► ``TokenUser``

No file, socket or clock is used here; ``node/oauth`` reads key files and fetches key sets.  Only
``keys.py`` needs the packages of the extra ``oauth2``.
"""
