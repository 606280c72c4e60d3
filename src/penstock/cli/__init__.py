"""The ``penstock`` command: starts brokers, looks into them, drives and archives queues.

``main`` holds the list of commands and imports none of them; each is loaded when it is
called, so that ``penstock --help`` costs a tenth of a second and no broker process ever
loads Spark.  Only ``serve`` knows the server; the others are outside users: they speak
HTTP (``inspect``) or AMQP (``bench``, ``pipeline``).

``data`` has the commands about data directories, ``admin`` those about definitions, users and
nodes.
"""
