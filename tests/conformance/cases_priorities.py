"""Queues with priorities: who goes first, what counts as a priority, what may be declared."""

from tests.conformance.case import World, case


def _queue(w: World, client: object, **arguments: object) -> str:
    return w.queue(client, exclusive=True, arguments={"x-max-priority": 5, **arguments})


@case
def the_highest_priority_goes_first(w: World) -> None:
    """Item 56: missing is 0, above the maximum is the maximum, equals keep their order."""
    a = w.client()
    q = _queue(w, a)
    for place, priority in enumerate((None, 1, 5, 200, 0, 3, 1, 255, 5)):
        if priority is None:
            a.publish(1, "", q, b"%d-none" % place)
        else:
            a.publish(1, "", q, b"%d-%d" % (place, priority), priority=priority)
    for _ in range(10):
        w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def what_comes_back_goes_to_its_place(w: World) -> None:
    a = w.client()
    q = _queue(w, a)
    for place, priority in enumerate((1, 2, 1, 2)):
        a.publish(1, "", q, b"%d-%d" % (place, priority), priority=priority)
    for _ in range(3):
        w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.nack", delivery_tag=3, multiple=True, requeue=True)
    for _ in range(5):
        w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def a_full_queue_drops_from_its_head(w: World) -> None:
    a = w.client()
    q = _queue(w, a, **{"x-max-length": 2})
    for place, priority in enumerate((3, 1, 2, 1)):
        a.publish(1, "", q, b"%d-%d" % (place, priority), priority=priority)
    for _ in range(3):
        w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def purge_counts_every_priority(w: World) -> None:
    a = w.client()
    q = _queue(w, a)
    for priority in (0, 3, 5):
        a.publish(1, "", q, b"m", priority=priority)
    w.attempt(a, "queue.purge", queue=q)
    w.attempt(a, "queue.declare", queue=q, exclusive=True, arguments={"x-max-priority": 5})


def _declare(w: World, value: object) -> None:
    a = w.client()
    w.attempt(
        a, "queue.declare", queue=w.name("q"), exclusive=True, arguments={"x-max-priority": value}
    )


@case
def a_maximum_of_zero(w: World) -> None:
    """Item 56."""
    _declare(w, 0)


@case
def a_maximum_of_255(w: World) -> None:
    """Item 56."""
    _declare(w, 255)


@case
def a_maximum_of_256(w: World) -> None:
    """Item 56."""
    _declare(w, 256)


@case
def a_negative_maximum(w: World) -> None:
    _declare(w, -1)


@case
def a_maximum_that_is_no_number(w: World) -> None:
    _declare(w, "five")


@case
def another_maximum(w: World) -> None:
    a = w.client()
    q = _queue(w, a)
    arguments = {"x-max-priority": 6}
    w.attempt(a, "queue.declare", queue=q, exclusive=True, arguments=arguments)
    w.attempt(a, "queue.declare", queue=q, exclusive=True)
