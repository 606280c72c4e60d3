#!/bin/sh
# Begins `penstock` in a container.  PENSTOCK_* and RABBITMQ_* variables are read by the broker
# itself; only the address is decided here: inside a container everything must be reachable from
# outside, or publishing a port would do nothing.  For the same reason passwords may come without TLS
# unless PENSTOCK_PLAIN_TEXT_PASSWORDS says otherwise.  `guest` still logs in from inside only, and
# NSQ's ports, which ask for no password, are closed by variables of the image.
set -eu

[ $# -gt 0 ] || set -- serve

if [ "$1" = "serve" ]; then
    : "${PENSTOCK_BIND:=${RABBITMQ_NODE_IP_ADDRESS:-0.0.0.0}}"
    : "${PENSTOCK_PLAIN_TEXT_PASSWORDS:=true}"
    export PENSTOCK_BIND PENSTOCK_PLAIN_TEXT_PASSWORDS
fi

# A command that is none of penstock's, such as sh, is run as it is.
case "$1" in
    sh | bash | /*) exec "$@" ;;
    *) exec penstock "$@" ;;
esac
