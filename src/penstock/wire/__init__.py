"""Bytes on the line become events and back; sans-IO: no socket, no clock, no loop.

    amqp/       AMQP 0-9-1 with RabbitMQ's extensions
    nsq/        NSQ's protocol V2
    ranges.py   the range protocol of the Spark data source: reading
    subscriptions.py  what it reads, and from where
    ranges.py   the range protocol of the Spark data source: range_frames.py, staging.py, …
    ranges.py   the range protocol of the Spark data source
    peer_queues.py  requests between nodes about queues
    reports.py  the same line: how pipelines go, and the event log
    peer.py     between the nodes of a cluster: frames; peer_hello.py: who is there
    publish_times.py  when a publisher says a message was published

Knows only ``core``: what an event means is the business of the sessions above.
"""
