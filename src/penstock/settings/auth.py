"""Settings of the backends of users; ``settings.py`` says what a declaration is."""

from penstock.settings.kinds import Boolean, Integer, NameList, Secret, Text


class AuthSettings:
    """The part of ``Settings`` that says where users come from."""

    # fmt: off
    auth_backends = NameList(("internal",),
        "Backends of users that a log-in tries in this order: `internal` (the broker's own users),"
        " `internal_loopback` (the same, from this machine only), `http` (a server, below),"
        " `oauth2` (tokens, below), `cache` (that of `auth_cache_backend`, with a cache of its"
        " answers). `A/B`: A checks the password, B decides on rights.")
    auth_oauth2 = Secret("",
        "Whose OAuth 2 tokens are accepted as passwords, if `auth_backends` has `oauth2`: JSON with"
        " RabbitMQ's keys ([the form](../guide/oauth2.md#the-setting)).",
        min_bytes=0, max_bytes=1 << 20)
    management_oauth = Secret("",
        "Single sign-on of the web UI: JSON with RabbitMQ's keys behind `management.` ([the"
        " form](../guide/oauth2.md#single-sign-on-in-the-web-ui)).", min_bytes=0, max_bytes=1 << 20)
    auth_http_method = Text("get",
        "Method of requests to the server; with `post`, passwords do not end up in its log.",
        choices=("get", "post"))
    auth_http_user_path = Text("http://localhost:8000/auth/user",
        "URL for log-ins; answers: `allow` with tags, `deny` with a reason.")
    auth_http_vhost_path = Text("http://localhost:8000/auth/vhost",
        "URL for rights on virtual hosts.")
    auth_http_resource_path = Text("http://localhost:8000/auth/resource",
        "URL for rights on exchanges and queues.")
    auth_http_topic_path = Text("http://localhost:8000/auth/topic",
        "URL for rights on routing keys of topic exchanges.")
    auth_http_request_timeout_ms = Integer(15_000, 1, 600_000,
        "Time for an answer of the server; without one the user is refused.", unit="ms")
    auth_http_connection_timeout_ms = Integer(15_000, 1, 600_000,
        "Time to connect to the server.", unit="ms")
    auth_http_disclosure = Boolean(False,
        "Whether clients get the server's reason for a refusal.")
    auth_http_recheck_s = Integer(60, 0, 86_400,
        "After this time the broker asks again for rights that a connection uses. If one was"
        " withdrawn, the connection's use of it ends. 0: never, as RabbitMQ.", unit="s")
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
        "How long answers of the server are kept, for all log-ins.", unit="ms")
    # fmt: on
    auth_cache_refusals = Boolean(False, "Whether refusals are kept as well.")
