"""The requests that both command lines make of a management API, by rabbitmqctl's name of each.

A row has the method, the path (below ``/api/`` if it has no slash in front) with its arguments in
braces, and further arguments: the fields of the body of a PUT or POST, else of the query.  Those
that are not given are left out.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

TABLE: Final = """\
add_user                     PUT     users/{user}  password password_hash hashing_algorithm tags
delete_user                  DELETE  users/{user}
add_user_password            POST    penstock/users/{user}/passwords  password
drop_user_password           DELETE  penstock/users/{user}/passwords/{which}
unlock_user                  DELETE  penstock/lockouts/{user}
set_user_limits              PUT     user-limits/{user}/{limit}  value
clear_user_limits            DELETE  user-limits/{user}/{limit}
set_permissions              PUT     permissions/{vhost}/{user}  configure write read
clear_permissions            DELETE  permissions/{vhost}/{user}
set_topic_permissions        PUT     topic-permissions/{vhost}/{user}  exchange write read
clear_topic_permissions      DELETE  topic-permissions/{vhost}/{user}
list_permissions             GET     vhosts/{vhost}/permissions
list_topic_permissions       GET     vhosts/{vhost}/topic-permissions
list_user_permissions        GET     users/{user}/permissions
list_user_topic_permissions  GET     users/{user}/topic-permissions
set_policy                   PUT     policies/{vhost}/{name}  pattern definition priority apply-to
clear_policy                 DELETE  policies/{vhost}/{name}
list_policies                GET     policies/{vhost}
set_operator_policy          PUT     operator-policies/{vhost}/{name}  \
                                     pattern definition priority apply-to
clear_operator_policy        DELETE  operator-policies/{vhost}/{name}
list_operator_policies       GET     operator-policies/{vhost}
set_parameter                PUT     parameters/{component}/{vhost}/{name}  value
clear_parameter              DELETE  parameters/{component}/{vhost}/{name}
set_global_parameter         PUT     global-parameters/{name}  value
clear_global_parameter       DELETE  global-parameters/{name}
list_global_parameters       GET     global-parameters
shovel_status                GET     shovels
restart_shovel               DELETE  shovels/vhost/{vhost}/{name}/restart
delete_shovel                DELETE  shovels/vhost/{vhost}/{name}
federation_status            GET     federation-links
restart_federation_link      DELETE  federation-links/vhost/{vhost}/{id}/{node}/restart
set_cluster_name             PUT     cluster-name  name
add_vhost                    PUT     vhosts/{vhost}  \
                                     description tags default_queue_type tracing \
                                     protected_from_deletion
delete_vhost                 DELETE  vhosts/{vhost}
set_vhost_limits             PUT     vhost-limits/{vhost}/{limit}  value
clear_vhost_limits           DELETE  vhost-limits/{vhost}/{limit}
list_vhosts                  GET     vhosts
list_exchanges               GET     exchanges/{vhost}
list_bindings                GET     bindings/{vhost}
list_consumers               GET     consumers/{vhost}
list_connections             GET     connections
list_channels                GET     channels
list_feature_flags           GET     feature-flags
declare_exchange             PUT     exchanges/{vhost}/{exchange}  \
                                     type durable auto_delete internal arguments
delete_exchange              DELETE  exchanges/{vhost}/{exchange}  if-unused
declare_queue                PUT     queues/{vhost}/{queue}  durable auto_delete arguments
delete_queue                 DELETE  queues/{vhost}/{queue}  if-empty if-unused
add_super_stream             PUT     stream/super-streams/{vhost}/{name}  \
                                     partitions binding-keys arguments
delete_super_stream          DELETE  stream/super-streams/{vhost}/{name}
purge_queue                  DELETE  queues/{vhost}/{queue}/contents
add_member                   POST    queues/quorum/{vhost}/{queue}/replicas/add  node
delete_member                DELETE  queues/quorum/{vhost}/{queue}/replicas/delete  node
transfer_leadership          POST    queues/{vhost}/{queue}/actions  action node
grow                         POST    queues/quorum/replicas/on/{node}/grow  \
                                     strategy vhost_pattern queue_pattern
shrink                       DELETE  queues/quorum/replicas/on/{node}/shrink
reset_node_auth_attempt_metrics  DELETE  auth/attempts/{node}
clear_auth_backend_cache     DELETE  penstock/auth-cache
reset_stats_db               DELETE  reset
queue_action                 POST    queues/{vhost}/{queue}/actions  action node
rebalance                    POST    rebalance/queues?moves=true  vhost_pattern queue_pattern type
set_vm_memory_high_watermark PUT     penstock/vm-memory-high-watermark  fraction absolute
set_disk_free_limit          PUT     penstock/disk-free-limit  mem_relative absolute
set_log_level                PUT     penstock/log-level  level
check_if_any_deprecated_features_are_used         GET  deprecated-features/used
check_if_metadata_store_is_initialized            GET  \
                                     health/checks/metadata-store/initialized
check_if_metadata_store_is_initialized_with_data  GET  \
                                     health/checks/metadata-store/initialized/with-data
has_reached_target_cluster_size  GET  health/checks/reached-target-cluster-size
activate_free_disk_space_monitoring  GET  /healthz/live
reconcile_vhosts             GET     /healthz/live
start_app                    GET     /healthz/live
check_running                GET     /healthz/live
is_running                   GET     /healthz/live
is_booting                   GET     /healthz/live
drain                        POST    penstock/drain
revive                       POST    penstock/revive
suspend_listeners            POST    penstock/drain
resume_listeners             POST    penstock/revive
"""
ARGUMENT: Final = re.compile(r"\{(\w+)\}")


class Request(NamedTuple):
    method: str
    path: str
    fields: tuple[str, ...]

    def path_of(self, given: Mapping[str, Any]) -> str:
        """The path with its arguments and the query; raises KeyError for a missing argument."""
        filled = ARGUMENT.sub(lambda found: quote(str(given[found[1]]), safe=""), self.path)
        path = filled if filled.startswith("/") else f"/api/{filled}"
        query = {} if self._has_body() else self._further(given)
        return f"{path}?{urlencode(query)}" if query else path

    def body_of(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """The fields of the body; None for a method without one."""
        return self._further(given) if self._has_body() else None

    def _has_body(self) -> bool:
        return self.method in ("PUT", "POST")

    def _further(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {field: given[field] for field in self.fields if field in given}


def _requests() -> dict[str, Request]:
    found = {}
    for line in TABLE.splitlines():
        name, method, path, *fields = line.split()
        found[name] = Request(method, path, tuple(fields))
    return found


REQUESTS: Final[Mapping[str, Request]] = _requests()
