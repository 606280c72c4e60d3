"""What the management API may ask of this node (``management/http/control``)."""

from penstock.management.http.control import NodeControl
from penstock.node.backup import Backup
from penstock.node.inspection.audit_trail import AuditTrail
from penstock.node.inspection.logs import Logs
from penstock.node.listener_set import ListenerSet
from penstock.node.shutdown import Shutdown


def control_of(
    listeners: ListenerSet, ending: Shutdown, logs: Logs, backup: Backup, trail: AuditTrail
) -> NodeControl:
    return NodeControl(
        log_lines=logs.lines,
        audit_records=trail.read,
        log_levels=logs.levels,
        set_log_level=logs.set_level,
        drained=lambda: {"draining": listeners.shut, "connections": listeners.client_count()},
        drain=listeners.drain,
        revive=listeners.revive,
        back_up=backup.begin,
        backup=lambda: {
            "under_way": backup.is_under_way,
            "bytes": backup.copied_bytes,
            "error": backup.error,
        },
        is_open=lambda: not listeners.shut,
        stop=ending.ask,
    )
