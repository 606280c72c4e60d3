"""``Parameters``: the runtime parameters that are in force, by virtual host, component and name.

In: records that were checked (``rules/parameter_values.py``).  Out: the same by name, and a number
that moves with each change, for those who act by them (shovels, federation).
"""

from typing import Final

from penstock.storage.definitions.parameters import ParameterRecord

CLUSTER_NAME: Final = "cluster_name"
CLUSTER_TAGS: Final = "cluster_tags"
"""A global parameter that the node itself goes by."""


class Parameters:
    """Global parameters have neither virtual host nor component."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str, str], ParameterRecord] = {}
        self.change_count = 0

    def put(self, record: ParameterRecord) -> None:
        self._records[(record.vhost, record.component, record.name)] = record
        self.change_count += 1

    def remove(self, name: str, vhost: str = "", component: str = "") -> None:
        if self._records.pop((vhost, component, name), None) is not None:
            self.change_count += 1

    def remove_vhost(self, vhost: str) -> None:
        for record in self.of_vhost(vhost):
            self.remove(record.name, vhost, record.component)

    def find(self, name: str, vhost: str = "", component: str = "") -> ParameterRecord | None:
        return self._records.get((vhost, component, name))

    def value(self, name: str) -> object:
        """Of a global parameter; None: there is none."""
        record = self.find(name)
        return None if record is None else record.value

    def of_vhost(self, vhost: str) -> list[ParameterRecord]:
        """``vhost``: "" = the global ones."""
        return [record for record in self._records.values() if record.vhost == vhost]

    def of_component(self, component: str) -> list[ParameterRecord]:
        """In all virtual hosts."""
        return [record for record in self._records.values() if record.component == component]
