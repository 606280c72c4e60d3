"""All verbs of ``penstockctl``, in the order of its help."""

from collections.abc import Mapping
from typing import Final

from penstock.ctl import verbs_look, verbs_rest, verbs_who
from penstock.ctl.verb import Verb

VERBS: Final[Mapping[str, Verb]] = {**verbs_who.VERBS, **verbs_look.VERBS, **verbs_rest.VERBS}
ALIASES: Final[Mapping[str, str]] = {
    "list_node_auth_attempts": "list_node_auth_attempt_stats",
}
