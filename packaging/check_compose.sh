#!/usr/bin/env bash
# Checks packaging/compose: the compose file by the library that docker compose reads it with, what
# it promises, and Prometheus' configuration by Prometheus' own checker.  No container is started;
# check_image.sh runs the broker as it is described here, and has a Prometheus scrape it.
#
# Needs Go 1.24 or newer (the library becomes a program in build/tools, once) and promtool.
set -euo pipefail
cd "$(dirname "$0")/.."

COMPOSE_GO=github.com/compose-spec/compose-go/v2/cmd@v2.10.2

die() {
    printf 'check_compose: %s\n' "$@" >&2
    exit 1
}

tool=build/tools/compose-go/${COMPOSE_GO##*@}/cmd
command -v promtool >/dev/null || die "promtool is missing: apt-get install prometheus"
if [ ! -x "$tool" ]; then
    command -v go >/dev/null || die "go is missing"
    GOBIN=$PWD/${tool%/*} go install "$COMPOSE_GO"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Without the variables: their values are nobody's business here.
(cd packaging/compose && "../../$tool" -no-interpolation -format json compose.yaml) >"$work/model.json"
python3 - "$work/model.json" <<'END'
import json
import re
import sys
from pathlib import Path

services = json.loads(Path(sys.argv[1]).read_text())["services"]
assert sorted(services) == ["broker", "grafana", "prometheus"]
nsq = {"4150", "4151", "4152", "4160", "4161"}
for name, service in services.items():
    for port in service["ports"]:
        assert port.get("host_ip") == "127.0.0.1", (name, port)
        assert not nsq & {str(port["target"]), port["published"]}, (name, port)
    for key, value in service.get("environment", {}).items():
        if "PASS" in key:
            assert re.fullmatch(r"\$\{[A-Z_]+:\?.*\}", value), f"{name}: {key} is in the file"
    for mount in service["volumes"]:
        if mount["type"] == "bind":
            assert Path(mount["source"]).exists(), (name, mount)
    assert service["cap_drop"] == ["ALL"], name
    assert service["security_opt"] == ["no-new-privileges:true"], name
broker = services["broker"]
assert broker["read_only"]
[volume] = broker["volumes"]
assert (volume["type"], volume["target"]) == ("volume", "/var/lib/penstock")
print("compose.yaml: three services, ports on 127.0.0.1 only, no password, the broker read-only")
END
cp packaging/compose/prometheus.yml monitoring/alerts.yml "$work"
promtool check config "$work/prometheus.yml"
