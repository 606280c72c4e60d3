"""AMQP 0-9-1 on the line: bytes become events, messages become frames."""
