"""What a queue that exists refuses; declarations are refused by ``broker/rules``.

*Stopped*: its next message lies on disk where something is damaged.  In: the backing, which knows.
Out: ``NotFound`` with the reason, in place of waiting for a message that never comes.  What lies
before the damage is given out, what comes behind is taken, and the queue can be looked at, purged
and deleted.  *Locked*: it is another session's own.  *Leased*: a reader of ranges has it.
"""

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.backing.variable_queue import VariableQueue
from penstock.core.errors import NotFound, NotImplementedYet, PreconditionFailed, ResourceLocked
from penstock.queues.stream_backing import StreamBacking


def not_for_streams(verb: str, name: str, vhost: str) -> NotImplementedYet:
    return NotImplementedYet(
        f"{verb} not supported by stream queues queue '{name}' in vhost '{vhost}'"
    )


def locked(name: str, vhost: str) -> ResourceLocked:
    return ResourceLocked(
        f"cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'. It could be"
        " originally declared on another connection or the exclusive property value does not match"
        " that of the original declaration."
    )


def leased(name: str, vhost: str) -> ResourceLocked:
    return ResourceLocked(f"queue '{name}' in vhost '{vhost}' is leased to a reader of ranges")


def check_going(backing: BackingQueue, name: str, vhost: str) -> None:
    """No message is at hand; raises NotFound when none is on its way either."""
    why = backing.why_stopped()
    if why != "":
        raise NotFound(f"queue '{name}' in vhost '{vhost}' is stopped: {why}")


def check_parts(backing: BackingQueue, name: str, vhost: str) -> None:
    """Raises PreconditionFailed of a stream, which is not made of variable queues."""
    if isinstance(backing, StreamBacking):
        raise PreconditionFailed(
            f"queue '{name}' in vhost '{vhost}' is a stream: its messages are read by consumers"
        )


def check_read(positions: VariableQueue, failed_before: i64, name: str, vhost: str) -> None:
    """Raises NotFound when reads failed since ``failed_reads()`` was ``failed_before``."""
    if positions.records.failed_reads > failed_before:
        check_going(positions, name, vhost)


def check_head(backing: BackingQueue, name: str, vhost: str) -> None:
    """Raises NotFound when the first message cannot be read.

    A reader of a stream begins where it likes, so none is refused.
    """
    if isinstance(backing, StreamBacking):
        return
    if backing.why_stopped() == "" or backing.ready_count() == 0:
        return
    messages = backing.fetch(1, 0)
    if len(messages) == 0:
        check_going(backing, name, vhost)
    backing.unfetch(messages)
