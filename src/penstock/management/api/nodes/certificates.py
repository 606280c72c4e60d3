"""The certificates of this node's listeners.

    GET /api/penstock/certificates   each with its setting, file, names, dates and listeners

They are those in force: of a file that was replaced, what was read at the last reload.
"""

import time
from typing import Final

from aiohttp import web

from penstock.management.facts.rows import Row
from penstock.management.facts.sessions import ListenerFacts, date_text
from penstock.management.http.access import MONITORING, Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints, Route
from penstock.tls.dates import Certificate

DAY_S: Final = 86_400


class CertificatesApi(Endpoints):
    heading = "certificates"

    def routes(self) -> list[Route]:
        return [
            Route(
                "/api/penstock/certificates",
                {"GET": self.certificates},
                "Names and dates of the listeners' certificates",
                role=MONITORING,
            )
        ]

    async def certificates(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        listeners = await self._on_loop(self._view.watch.listeners)
        used: dict[tuple[str, Certificate], list[Row]] = {}
        for listener in (*listeners, *self._context.own_listeners):
            for setting, some in listener.certificates.items():
                for one in some:
                    used.setdefault((setting, one), []).append(_place(listener))
        now_s = time.time()
        return json_response(
            [
                {
                    "node": self._view.node_name,
                    "setting": setting,
                    "file": one.path,
                    "subject": one.subject,
                    "issuer": one.issuer,
                    "names": list(one.names),
                    "not_before": date_text(one.begins_s),
                    "not_after": date_text(one.ends_s),
                    "days_left": int((one.ends_s - now_s) // DAY_S),
                    "listeners": places,
                }
                for (setting, one), places in sorted(used.items(), key=lambda pair: pair[0][1][-1])
            ]
        )


def _place(listener: ListenerFacts) -> Row:
    return {"protocol": listener.protocol, "ip_address": listener.host, "port": listener.port}
