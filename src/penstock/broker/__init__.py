"""The broker: virtual hosts, users, and the rules that join queues, routing and storage.

In: calls of sessions.  Out: return values and errors of ``core.errors``; a queue that may have
something to deliver is on the list of wakeups.  Knows no protocol bytes.

    broker       all parts together, and the turn that moves messages out
    topology     virtual hosts, exchanges, queues, bindings, NSQ's topics
    rules        rights, arguments, policies, limits, alarms, confirms
    transfers    dead letters, delayed messages, staged batches, replies
    definitions  all of it in RabbitMQ's JSON
"""
