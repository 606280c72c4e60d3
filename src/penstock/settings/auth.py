"""Settings of the backends of users; ``settings.py`` says what a declaration is."""

from penstock.settings.kinds import Boolean, Integer, NameList, Secret, Text


class AuthSettings:
    """The part of ``Settings`` that says where users come from."""

    # fmt: off
    auth_backends = NameList(("internal",),
        "Backends of users that a log-in tries in this order: `internal` (the broker's own users),"
        " `internal_loopback` (the same, from this machine only), `http` (a server, below),"
        " `oauth2` (tokens, below), `cache` (that of `auth_cache_backend`, with its answers kept"
        " for a time). `A/B`: A checks the password, B says what the user may.")
    auth_oauth2 = Secret("",
        "Whose tokens of OAuth 2 are taken as passwords, where `auth_backends` names `oauth2`: JSON"
        " with RabbitMQ's keys ([the form](../guide/oauth2.md#the-setting)).",
        min_bytes=0, max_bytes=1 << 20)
    management_oauth = Secret("",
        "Single sign-on of the web UI: JSON with RabbitMQ's keys behind `management.` ([the"
        " form](../guide/oauth2.md#single-sign-on-in-the-web-ui)).", min_bytes=0, max_bytes=1 << 20)
    auth_http_method = Text("get",
        "How the server is asked; with `post`, passwords do not end up in its log.",
        choices=("get", "post"))
    auth_http_user_path = Text("http://localhost:8000/auth/user",
        "URL that is asked who a user is; answers: `allow` with tags, `deny` with a reason.")
    auth_http_vhost_path = Text("http://localhost:8000/auth/vhost",
        "URL that is asked about virtual hosts.")
    auth_http_resource_path = Text("http://localhost:8000/auth/resource",
        "URL that is asked about exchanges and queues.")
    auth_http_topic_path = Text("http://localhost:8000/auth/topic",
        "URL that is asked about routing keys of topic exchanges.")
    auth_http_request_timeout_ms = Integer(15_000, 1, 600_000,
        "Time that the server may take for an answer; without one the user is refused.", unit="ms")
    auth_http_connection_timeout_ms = Integer(15_000, 1, 600_000,
        "Time that connecting to it may take.", unit="ms")
    auth_http_disclosure = Boolean(False,
        "Whether clients read the reason that the server gives for a refused right.")
    auth_http_recheck_s = Integer(60, 0, 86_400,
        "After this time a right on which a connection rests is asked for again; when it was taken"
        " meanwhile, what rests on it ends. 0: never, as RabbitMQ.", unit="s")
    auth_http_ssl_cacertfile = Text("",
        "Certificates of the authorities that sign the server's, for `https` URLs. Empty: those of"
        " the system.", min_bytes=0)
    auth_http_ssl_certfile = Text("", "Certificate that the broker shows the server.", min_bytes=0)
    auth_http_ssl_keyfile = Text("", "Its key. Empty: in the same file.", min_bytes=0)
    auth_http_ssl_password = Secret("", "Password of that key.", min_bytes=0)
    auth_http_ssl_verify = Text("verify_peer",
        "Whether the server's certificate and name are checked.",
        choices=("verify_peer", "verify_none"))
    auth_http_ssl_server_name = Text("",
        "Name that its certificate must have. Empty: the host of the URL.", min_bytes=0)
    auth_cache_backend = Text("internal",
        "Backend, or pair of backends, that `cache` in `auth_backends` stands for.")
    auth_cache_ttl_ms = Integer(15_000, 0, 86_400_000,
        "Time for which answers of the server are kept for all log-ins.", unit="ms")
    # fmt: on
    auth_cache_refusals = Boolean(False, "Whether refusals are kept as well.")
