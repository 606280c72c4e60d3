"""Settings of the listeners beyond address and port; ``settings.py`` says what a declaration is."""

from penstock.settings.kinds import Boolean, Integer, NameList, Text


class ListenerSettings:
    """The part of ``Settings`` that is about where and how clients come in."""

    # fmt: off
    port_offset = Integer(0, 0, 39_000,
        "Added to each port that no setting names, also those of NSQ, nsqlookupd and metrics: for a"
        " second broker on a machine.")
    ssl_port = Integer(5671, 0, 65535,
        "TCP port for AMQP over TLS, opened when `ssl_certfile` is set; 0: a free one.")
    proxy_protocol = NameList((),
        "Listeners whose clients come through a proxy that sends the PROXY protocol (version 1 or"
        " 2). The client's address is the one in the proxy's header; a connection without the"
        " header is refused. Name the proxies in `address_rules` (`proxy allow 10.0.0.5`):"
        " otherwise a client that reaches the listener directly can claim any address.",
        choices=("amqp", "amqp/ssl"))
    unix_socket = Text("",
        "Path of a Unix socket for AMQP clients; they count as clients of this machine. Empty:"
        " none.", min_bytes=0, max_bytes=107)
    unix_socket_mode = Text("0660",
        "Mode of that socket's file, in octal: users with write permission may connect.")
    amqp_listener = Boolean(True,
        "Whether AMQP without TLS is served over TCP; false leaves TLS and the Unix socket.")
    ssl_listener = Boolean(True,
        "Whether AMQP over TLS is served when `ssl_certfile` is set; NSQ over TLS needs it, too.")
    ssl_bind = Text("",
        "Address the TLS listener binds to. Empty: as `bind`.", min_bytes=0, max_bytes=255)
    http_bind = Text("",
        "Address the management API binds to. Empty: as `bind`.", min_bytes=0, max_bytes=255)
    http_listener = Boolean(True,
        "Whether the management API is served without TLS at `http_port`; false leaves"
        " `https_port`.")
    https_port = Integer(0, 0, 65535,
        "TCP port of the management API and the UI over TLS (RabbitMQ's is 15671), with the"
        " certificate of `ssl_certfile` or of `https_tls`. 0: off.")
    https_bind = Text("",
        "Address that listener binds to. Empty: as `http_bind`.", min_bytes=0, max_bytes=255)
    http_host_names = NameList((),
        "Host names of the management API besides this machine's own, such as that of a reverse"
        " proxy on it. Browsers on this machine and requests of such a proxy may use them.")
    listen_backlog = Integer(1024, 1, 65_535,
        "Connections the system may hold for a listener before they are accepted.")
    # fmt: on
