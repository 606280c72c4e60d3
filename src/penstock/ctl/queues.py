"""Deleting queues."""

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import USAGE, Refused


def delete_queue(call: Call) -> str:
    (queue,) = call.take(1)
    asked = [one for one in ("empty", "unused") if call.is_set(f"if-{one}")]
    conditions = "and ".join(f"if queue is {one} " for one in asked)
    call.say(f"Deleting queue '{queue}' on vhost '{call.vhost}' {conditions}...")
    found = call.node.found(path_of("queues", call.vhost, queue))
    if found is None:
        raise Refused("Queue not found", USAGE)
    # Of one that is down there are no counts.
    if "unused" in asked and found.get("consumers", 0):
        raise Refused("Queue is in use", USAGE)
    if "empty" in asked and found.get("messages", 0):
        raise Refused("Queue is not empty", USAGE)
    # Asked again of the node, which alone can look and delete in one breath.
    query = {f"if-{one}": "true" for one in asked}
    if call.do("delete_queue", queue=queue, **query).status == 404:
        raise Refused("Queue not found", USAGE)
    return f"Queue was successfully deleted with {found.get('messages_ready', 0)} ready messages"
