"""A Kubernetes API that only shows objects it was given, for a chart's ``lookup``.

python3 packaging/helm/check/kube_stub.py OBJECTS KUBECONFIG

``OBJECTS``: a JSON list of what `helm template` has rendered.  The stub listens on a free port of
127.0.0.1, writes a kubeconfig for itself, and ends with its standard input.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

VERSION: Final = {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
PLURALS: Final = {"NetworkPolicy": "networkpolicies"}


def plural(kind: str) -> str:
    return PLURALS.get(kind, kind.lower() + "s")


def top(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def pages(objects: list[dict[str, Any]], namespace: str = "default") -> dict[str, Any]:
    """What is at which path: the objects, and what a client asks to find their paths."""
    found: dict[str, Any] = {"/version": VERSION}
    groups: dict[str, Any] = {}
    for one in objects:
        version, kind = one["apiVersion"], one["kind"]
        place = top(version)
        path = f"{place}/namespaces/{namespace}/{plural(kind)}/{one['metadata']['name']}"
        found[path] = one
        kinds = found.setdefault(
            place,
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version,
                "resources": [],
            },
        )
        row = {"name": plural(kind), "kind": kind, "namespaced": True, "verbs": ["get"]}
        if row not in kinds["resources"]:
            kinds["resources"].append(row)
        group, slash, number = version.partition("/")
        if slash:
            shown = {"groupVersion": version, "version": number}
            groups[group] = {"name": group, "versions": [shown], "preferredVersion": shown}
    found["/api"] = {"kind": "APIVersions", "versions": ["v1"]}
    found["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [*groups.values()]}
    return found


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pages: dict[str, Any]

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, answer = 200, self.pages.get(path)
        if answer is None:
            status, answer = 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            answer |= {"reason": "NotFound", "code": 404, "message": f"{path} not found"}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def main() -> None:
    Handler.pages = pages(json.loads(Path(sys.argv[1]).read_text()))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"name": "stub", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "stub", "context": {"cluster": "stub", "user": "stub"}}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context]}
    config |= {"users": [{"name": "stub", "user": {}}], "current-context": "stub"}
    new = Path(sys.argv[2] + ".new")
    new.write_text(json.dumps(config))
    new.replace(sys.argv[2])
    sys.stdin.read()


if __name__ == "__main__":
    main()
