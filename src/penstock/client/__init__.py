"""Clients on the broker's own codecs: a blocking AMQP client, a shovel, a load generator.

Outside users of the broker: they import codecs and ``core`` only.
"""
