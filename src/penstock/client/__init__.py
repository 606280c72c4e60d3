"""Small clients on the same wire code: a blocking AMQP client, a shovel, a load generator.

Outside users of the broker: they import ``wire`` and ``core`` only.
"""
