"""Links: the node itself as a client of brokers, which moves messages between them (shovels).

In: runtime parameters, and a way to connect to this node.  Out: one thread for each link, and its
state.  A link speaks AMQP 0-9-1 on both sides and knows nothing else of either broker.
"""
