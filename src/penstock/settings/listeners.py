"""Settings of the listeners beyond address and port; ``settings.py`` says what a declaration is."""

from penstock.settings.kinds import Boolean, Integer, NameList, Text


class ListenerSettings:
    """The part of ``Settings`` that is about where and how clients come in."""

    port_offset = Integer(
        0,
        0,
        39_000,
        "Added to each port that no setting names, NSQ's, nsqlookupd's and the metrics' too: for a"
        " second broker on a machine.",
    )
    ssl_port = Integer(
        5671,
        0,
        65535,
        "TCP port for AMQP over TLS, opened when `ssl_certfile` is set; 0 takes a free one.",
    )
    ssl_certfile = Text(
        "",
        "Certificate of the broker in PEM, with those that lead to its authority behind it."
        " Empty: no TLS.",
        min_bytes=0,
    )
    ssl_min_version = Text(
        "1.2", "Oldest version of TLS that clients may use.", choices=("1.2", "1.3")
    )
    ssl_keyfile = Text("", "Private key of that certificate in PEM, not encrypted.", min_bytes=0)
    ssl_cacertfile = Text(
        "", "Certificates in PEM of the authorities whose clients are trusted.", min_bytes=0
    )
    ssl_verify = Text(
        "verify_none",
        "`verify_peer` asks clients for a certificate and refuses one that `ssl_cacertfile` does"
        " not vouch for.",
        choices=("verify_none", "verify_peer"),
    )
    ssl_fail_if_no_peer_cert = Boolean(
        False, "With `verify_peer`: refuse clients that have no certificate."
    )
    ssl_cert_login_from = Text(
        "",
        "Offers SASL EXTERNAL to clients whose certificate was verified: the user is named by this"
        " part of the certificate's subject, and no password is asked. Empty: not offered.",
        choices=("", "distinguished_name", "common_name"),
    )
    proxy_protocol = NameList(
        (),
        "Listeners whose clients come through a proxy that speaks the PROXY protocol (version 1"
        " or 2). The client's address is the one in the proxy's header; a connection without the"
        " header is refused. Let only proxies reach such a listener: a client that reaches it"
        " directly can claim any address.",
        choices=("amqp", "amqp/ssl"),
    )
    unix_socket = Text(
        "",
        "Path of a Unix socket for AMQP clients; they count as clients of this machine. Empty:"
        " none.",
        min_bytes=0,
        max_bytes=107,
    )
    unix_socket_mode = Text(
        "0660", "Mode of that socket's file, in octal: users that may write to it may connect."
    )
    amqp_listener = Boolean(
        True, "Whether AMQP without TLS is served over TCP; false leaves TLS and the Unix socket."
    )
    ssl_listener = Boolean(
        True,
        "Whether AMQP over TLS is served when `ssl_certfile` is set; NSQ over TLS needs it, too.",
    )
    ssl_bind = Text(
        "", "Address the TLS listener binds to. Empty: as `bind`.", min_bytes=0, max_bytes=255
    )
    http_bind = Text(
        "", "Address the management API binds to. Empty: as `bind`.", min_bytes=0, max_bytes=255
    )
    http_host_names = NameList(
        (),
        "Host names of the management API besides this machine's own, such as that of a reverse"
        " proxy on it: browsers on this machine, and what such a proxy hands on, may use them.",
    )
    listen_backlog = Integer(
        1024, 1, 65_535, "Connections the system may hold for a listener before they are accepted."
    )
