"""NSQ's HTTP API as nsqd has it, and the lookup daemon (nsqlookupd) over TCP and HTTP.

They run beside the event loop, in a thread with a loop of its own (``services``).
"""
