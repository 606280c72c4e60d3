"""The codec of AMQP 0-9-1: bytes become events, messages become frames."""
