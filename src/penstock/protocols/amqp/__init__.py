"""AMQP 0-9-1 with RabbitMQ's extensions: the session of a connection and its channels."""
