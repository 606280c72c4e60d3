"""Deleting queues."""

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import USAGE, Refused


def delete_queue(call: Call) -> str:
    (queue,) = call.take(1)
    if_empty, if_unused = call.is_set("if-empty"), call.is_set("if-unused")
    conditions = [
        *(["if queue is empty "] if if_empty else []),
        *(["if queue is unused "] if if_unused else []),
    ]
    call.say(f"Deleting queue '{queue}' on vhost '{call.vhost}' {'and '.join(conditions)}...")
    path = path_of("queues", call.vhost, queue)
    found = call.node.found(path)
    if found is None:
        raise Refused("Queue not found", USAGE)
    # Of one that is down there are no counts.
    if if_unused and found.get("consumers", 0):
        raise Refused("Queue is in use", USAGE)
    if if_empty and found.get("messages", 0):
        raise Refused("Queue is not empty", USAGE)
    # Asked again of the node, which alone can look and delete in one breath.
    asked = [*(["if-empty=true"] if if_empty else []), *(["if-unused=true"] if if_unused else [])]
    if not call.node.delete(path + ("?" + "&".join(asked) if asked else "")):
        raise Refused("Queue not found", USAGE)
    return f"Queue was successfully deleted with {found.get('messages_ready', 0)} ready messages"
