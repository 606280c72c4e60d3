"""All endpoints of the management API, in this order: a path belongs to the first that names it."""

from typing import Final

from penstock.management.api.accounts.limits import LimitsApi
from penstock.management.api.accounts.log_ins import LogInsApi
from penstock.management.api.accounts.permissions import PermissionsApi
from penstock.management.api.accounts.users import UsersApi
from penstock.management.api.attention import AttentionApi
from penstock.management.api.clients import ClientsApi
from penstock.management.api.definitions import DefinitionsApi
from penstock.management.api.exchanges import ExchangesApi
from penstock.management.api.live import LiveApi
from penstock.management.api.metrics import MetricsEndpoints
from penstock.management.api.nodes.cluster import ClusterApi
from penstock.management.api.nodes.health import CertificatesApi, HealthApi
from penstock.management.api.nodes.nodes import NodesApi
from penstock.management.api.nodes.operating import OperatingApi
from penstock.management.api.overview import OverviewApi
from penstock.management.api.parameters import ParametersApi
from penstock.management.api.policies import PoliciesApi
from penstock.management.api.policy_reach import PolicyReachApi
from penstock.management.api.queues.messages import MessagesApi
from penstock.management.api.queues.queue_actions import QueueActionsApi
from penstock.management.api.queues.queues import QueuesApi
from penstock.management.api.queues.quorum import MirrorsApi, QuorumApi
from penstock.management.api.queues.super_streams import SuperStreamsApi
from penstock.management.api.resources import ResourcesApi
from penstock.management.api.traces import TracesApi
from penstock.management.api.vhosts import VhostsApi
from penstock.management.api.views import ViewsApi
from penstock.management.api.what_if import WhatIfApi
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.openapi import OpenApi

ENDPOINTS: Final[tuple[type[Endpoints], ...]] = (
    OverviewApi, AttentionApi, QuorumApi, QueuesApi, QueueActionsApi, MirrorsApi,
    SuperStreamsApi, ExchangesApi, MessagesApi, ClientsApi, VhostsApi, LimitsApi,
    ResourcesApi, DefinitionsApi, LiveApi, MetricsEndpoints, WhatIfApi, TracesApi,
    ViewsApi, OperatingApi, ClusterApi, LogInsApi,
    HealthApi, CertificatesApi, NodesApi, ParametersApi, PermissionsApi,
    PoliciesApi, PolicyReachApi, UsersApi, OpenApi,
)  # fmt: skip
