"""Holds what `helm template` rendered against what the chart promises.

python objects.py RENDERED [JSON]      with PyYAML, and Penstock's source on the path

The variables and the TOML of each broker are read by the broker's own settings; certificates are
held by openssl against the names by which nodes and etcd are called.  ``JSON``: the objects are
written there, for kube_stub.py.
"""

import base64
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from penstock.settings.settings import load_settings

NSQ = {"nsq_port": 4150, "nsq_http_port": 0, "nsq_https_port": 0}
NSQ |= {"nsqlookupd_tcp_port": 0, "nsqlookupd_http_port": 0}
SECRET_WORDS = re.compile(r"pass(word)?$|secret$|token$", re.IGNORECASE)

Object = dict[str, Any]


def of(objects: list[Object], kind: str) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def check_pod(name: str, spec: Object) -> None:
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True, name
    assert security["runAsUser"] > 0, name
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
    assert spec["automountServiceAccountToken"] is False, name
    assert spec["enableServiceLinks"] is False, name
    for container in spec["containers"] + spec.get("initContainers", []):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, (name, container["name"])
        for variable in container.get("env", []):
            if SECRET_WORDS.search(variable["name"]):
                assert "secretKeyRef" in variable["valueFrom"], (name, variable)
        names = [port["name"] for port in container.get("ports", [])]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            if kind in container:
                assert container[kind]["httpGet"]["port"] in names, (name, kind)
    volumes = {volume["name"] for volume in spec["volumes"]} | {"data"}
    for container in spec["containers"] + spec.get("initContainers", []):
        assert {one["name"] for one in container["volumeMounts"]} <= volumes, name


def check_broker(name: str, spec: Object, toml: str) -> Any:
    (broker,) = spec["containers"]
    paths = {kind: broker[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness")}
    assert paths == {"startup": "/healthz/startup", "liveness": "/healthz/live"}
    assert broker["readinessProbe"]["httpGet"]["path"] == "/healthz/ready"
    environment = {}
    for variable in broker["env"]:
        text = variable.get("value", "x" * 32)
        environment[variable["name"]] = text.replace("$(POD_NAME)", f"{name}-0")
    settings = load_settings(toml, environment, {}, "penstock.toml")
    assert settings.ignored_environment in ((), []), settings.ignored_environment
    for key, port in NSQ.items():
        open_port = settings.value_of(key)
        assert open_port in (0, port), key
        assert not open_port or settings.nsq_auth_required, key
    command = broker["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:4] == ["penstock", "drain", "--wait", "--timeout"]
    allowed_s = spec["terminationGracePeriodSeconds"]
    assert allowed_s >= int(command[4]) + settings.stop_timeout_s + 10, name
    assert settings.data_dir.startswith("/var/lib/penstock/")
    return settings


def check_certificate(data: Object, key: str, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for file in ("ca.crt", f"{key}.crt", f"{key}.key"):
            (place / file).write_bytes(base64.b64decode(data[file]))
        verify = ["openssl", "verify", "-CAfile", "ca.crt"]
        for name in names:
            done = [*verify, "-verify_hostname", name, f"{key}.crt"]
            subprocess.run(done, cwd=place, check=True, capture_output=True)
        for purpose in ("sslserver", "sslclient"):
            done = [*verify, "-purpose", purpose, f"{key}.crt"]
            subprocess.run(done, cwd=place, check=True, capture_output=True)


def check(objects: list[Object]) -> str:
    sets, services = of(objects, "StatefulSet"), of(objects, "Service")
    brokers = {name: one for name, one in sets.items() if not name.endswith("-etcd")}
    ((name, broker),) = brokers.items()
    for set_name, one in sets.items():
        spec, template = one["spec"], one["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items(), set_name
        service = services[spec["serviceName"]]["spec"]
        assert service["clusterIP"] == "None", set_name
        assert service["selector"].items() <= labels.items(), set_name
        budget = of(objects, "PodDisruptionBudget")[set_name]["spec"]
        assert budget["selector"] == spec["selector"], set_name
        check_pod(set_name, template["spec"])
    toml = of(objects, "ConfigMap")[name]["data"]["penstock.toml"]
    settings = check_broker(name, broker["spec"]["template"]["spec"], toml)
    replicas, endpoints = broker["spec"]["replicas"], settings.cluster_etcd_endpoints
    assert bool(endpoints) == (replicas > 1)
    assert bool(settings.cluster_secret_file) == (replicas > 1)
    secrets = {key: one["data"] for key, one in of(objects, "Secret").items()}
    tls = secrets.get(f"{name}-cluster-tls")
    if tls is not None:
        nodes = settings.cluster_address.removeprefix(f"{name}-0.")
        addresses = [f"{name}-{number}.{nodes}" for number in range(replicas)]
        check_certificate(tls, "node", addresses)
        check_certificate(tls, "client", [])
        if f"{name}-etcd" in sets:
            hosts = [endpoint.rpartition(":")[0] for endpoint in endpoints]
            check_certificate(tls, "etcd", hosts)
    kinds = sorted({one["kind"] for one in objects})
    shown = ", ".join(f"{len(of(objects, kind))} {kind}" for kind in kinds)
    return f"replicas {replicas}: {shown}"


def main() -> None:
    objects = [one for one in yaml.safe_load_all(Path(sys.argv[1]).read_text()) if one]
    print("  ", check(objects))
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(objects))


if __name__ == "__main__":
    main()
