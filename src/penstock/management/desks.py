"""Who answers what over HTTP, in this order: a path belongs to the first that names it."""

from typing import Final

from penstock.management.aliveness_api import AlivenessApi
from penstock.management.bindings_api import BindingsApi
from penstock.management.clients_api import ClientsApi
from penstock.management.cluster_api import ClusterApi
from penstock.management.definitions_api import DefinitionsApi
from penstock.management.desk import Desk
from penstock.management.exchanges_api import ExchangesApi
from penstock.management.health_api import HealthApi
from penstock.management.limits_api import LimitsApi
from penstock.management.live_api import LiveApi
from penstock.management.message_actions_api import MessageActionsApi
from penstock.management.messages_api import MessagesApi
from penstock.management.metrics.serving import MetricsDesk
from penstock.management.mirrors_api import MirrorsApi
from penstock.management.nodes_api import NodesApi
from penstock.management.openapi import OpenApi
from penstock.management.operating_api import OperatingApi
from penstock.management.overview_api import OverviewApi
from penstock.management.parameters_api import ParametersApi
from penstock.management.permissions_api import PermissionsApi
from penstock.management.pipelines_api import PipelinesApi
from penstock.management.policies_api import PoliciesApi
from penstock.management.queue_actions_api import QueueActionsApi
from penstock.management.queues_api import QueuesApi
from penstock.management.resources_api import ResourcesApi
from penstock.management.search_api import SearchApi
from penstock.management.users_api import UsersApi
from penstock.management.vhosts_api import VhostsApi
from penstock.management.views_api import ViewsApi
from penstock.management.what_if_api import WhatIfApi

DESKS: Final[tuple[type[Desk], ...]] = (
    OverviewApi,
    QueuesApi,
    QueueActionsApi,
    MirrorsApi,
    ExchangesApi,
    BindingsApi,
    MessagesApi,
    ClientsApi,
    VhostsApi,
    LimitsApi,
    ResourcesApi,
    DefinitionsApi,
    PipelinesApi,
    LiveApi,
    MetricsDesk,
    WhatIfApi,
    ViewsApi,
    SearchApi,
    OperatingApi,
    MessageActionsApi,
    ClusterApi,
    HealthApi,
    AlivenessApi,
    NodesApi,
    ParametersApi,
    PermissionsApi,
    PoliciesApi,
    UsersApi,
    OpenApi,
)
