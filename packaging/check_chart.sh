#!/usr/bin/env bash
# Checks the Helm chart: helm lint, kubeconform on what it renders, and what it promises.
#
#   each case of values: lint, strictly; the oldest and the newest Kubernetes of the schemas, strictly
#   packaging/helm/check/objects.py: security, probes, settings by the broker's own code, certificates
#   values that must be refused are
#   what was generated once is kept: `lookup` against packaging/helm/check/kube_stub.py
#
# The tools come from the Go module proxy and the Python package index, pinned, into build/tools.
# Needs Go 1.25 or newer, python3 with venv, and openssl.  No Kubernetes is needed, and none is used:
# whether the pods run is not seen here.
set -euo pipefail
cd "$(dirname "$0")/.."

HELM=v3.20.2
KUBECONFORM=v0.7.0
SCHEMAS=1.34.1  # of the package kubernetes-validate, which has those of eleven versions
KUBERNETES="1.25.0 1.34.0"
CHART=packaging/helm/penstock
CHECK=packaging/helm/check
TOOLS=$PWD/build/tools
export PATH=$TOOLS/helm-$HELM:$TOOLS/kubeconform-$KUBECONFORM:$PATH
export HELM_CACHE_HOME=$TOOLS/helm-home HELM_CONFIG_HOME=$TOOLS/helm-home HELM_DATA_HOME=$TOOLS/helm-home
unset KUBECONFIG
python=$TOOLS/kubernetes-validate-$SCHEMAS/bin/python
schemas=$TOOLS/kubernetes-validate-$SCHEMAS/schemas

say() { printf '==> %s\n' "$*"; }

die() {
    printf 'check_chart: %s\n' "$@" >&2
    exit 1
}

get_tools() {
    local program
    for program in go openssl python3; do
        command -v "$program" >/dev/null || die "$program is missing"
    done
    if [ ! -x "$TOOLS/helm-$HELM/helm" ]; then
        say "building helm $HELM"
        GOBIN=$TOOLS/helm-$HELM go install "helm.sh/helm/v3/cmd/helm@$HELM"
    fi
    if [ ! -x "$TOOLS/kubeconform-$KUBECONFORM/kubeconform" ]; then
        say "building kubeconform $KUBECONFORM"
        GOBIN=$TOOLS/kubeconform-$KUBECONFORM \
            go install "github.com/yannh/kubeconform/cmd/kubeconform@$KUBECONFORM"
    fi
    if [ ! -d "$schemas" ]; then
        say "schemas of kubernetes-validate $SCHEMAS"
        rm -rf "${schemas%/*}"
        python3 -m venv "${schemas%/*}"
        "$python" -m pip install --quiet --disable-pip-version-check "kubernetes-validate==$SCHEMAS"
        "$python" - "$schemas.new" $KUBERNETES <<'END'
# Schemas refer to their definitions by a URL; beside each other, they do by file name.
import json
import sys
from importlib.resources import files
from pathlib import Path

base = files("kubernetes_validate") / "kubernetes-json-schema"
for version in sys.argv[2:]:
    out = Path(sys.argv[1]) / f"v{version}"
    out.mkdir(parents=True)
    for file in (base / f"v{version}-local-strict").iterdir():
        schema = json.loads(file.read_text())
        schema.pop("$id", None)
        text = json.dumps(schema).replace('"/api/_definitions.json#', '"_definitions.json#')
        (out / file.name).write_text(text)
END
        mv "$schemas.new" "$schemas"
    fi
}

# case NAME VALUES: lints, renders, and holds what came out against schemas and promises.
check_case() {
    local name=$1 values=$2 version
    say "$name"
    helm lint --strict --quiet --kube-version "${KUBERNETES##* }" --values "$values" "$CHART"
    for version in $KUBERNETES; do
        helm template check "$CHART" --kube-version "$version" --values "$values" >"$work/$name.yaml"
        kubeconform -strict -summary -kubernetes-version "$version" \
            -skip monitoring.coreos.com/v1/ServiceMonitor \
            -schema-location "$schemas/{{ .NormalizedKubernetesVersion }}/{{ .ResourceKind }}{{ .KindSuffix }}.json" \
            "$work/$name.yaml"
    done
    PENSTOCK_PURE=1 PYTHONPATH=src PYTHONDONTWRITEBYTECODE=1 \
        "$python" "$CHECK/objects.py" "$work/$name.yaml" "$work/$name.json"
}

# refused WORDS VALUE...: the chart does not take these, and says the words.
refused() {
    local words=$1 values=() said
    shift
    for value in "$@"; do values+=(--set "$value"); done
    if said=$(helm template check "$CHART" --kube-version "${KUBERNETES##* }" "${values[@]}" 2>&1); then
        die "the chart takes $*"
    fi
    grep -qF -- "$words" <<<"$said" || die "$* is refused, but with other words:" "$said"
}

# What is in the cluster already: the objects of a case.
in_cluster() {
    local objects=$1 code=0
    shift
    rm -f "$work/stdin" "$work/kubeconfig"
    mkfifo "$work/stdin"
    exec 9<>"$work/stdin"
    python3 "$CHECK/kube_stub.py" "$work/$objects.json" "$work/kubeconfig" <"$work/stdin" 9>&- &
    local stub=$!
    while [ ! -e "$work/kubeconfig" ]; do
        kill -0 "$stub" 2>/dev/null || die "the stub of Kubernetes does not run"
        sleep 0.1
    done
    KUBECONFIG=$work/kubeconfig helm template check "$CHART" --dry-run=server \
        --kube-version "${KUBERNETES##* }" "$@" >"$work/again.yaml" 2>"$work/again.err" || code=$?
    kill "$stub"
    wait "$stub" 2>/dev/null || true
    exec 9>&-
    return "$code"
}

work=$(mktemp -d)
trap 'rm -rf "$work"; kill $(jobs -p) 2>/dev/null || true' EXIT
get_tools

for values in "$CHECK"/values/*.yaml; do
    name=${values##*/}
    check_case "${name%.yaml}" "$values"
done

say "a schema is no decoration"
sed 's/^            preStop:/            preStopp:/' "$work/three.yaml" >"$work/wrong.yaml"
if kubeconform -strict -kubernetes-version "${KUBERNETES##* }" \
    -schema-location "$schemas/{{ .NormalizedKubernetesVersion }}/{{ .ResourceKind }}{{ .KindSuffix }}.json" \
    "$work/wrong.yaml" >/dev/null; then
    die "kubeconform passes a field that does not exist"
fi

say "what is refused"
refused "replicas" replicas=2
refused "default_pass" settings.default_pass=secret
refused "cluster_etcd_password" settings.cluster_etcd_password=secret
refused "passwort" auth.passwort=x
refused "nobody could connect" tls.plain=false

say "what is kept"
in_cluster three --values "$CHECK/values/three.yaml" || die "$(cat "$work/again.err")"
diff "$work/three.yaml" "$work/again.yaml" || die "an upgrade would change what was generated"
in_cluster one --values "$CHECK/values/one.yaml" || die "$(cat "$work/again.err")"
diff "$work/one.yaml" "$work/again.yaml" || die "an upgrade would change what was generated"
if in_cluster one --values "$CHECK/values/three.yaml"; then die "one node becomes three"; fi
grep -q "cannot get 3" "$work/again.err" || die "$(cat "$work/again.err")"
if in_cluster three --values "$CHECK/values/one.yaml"; then die "three nodes become one"; fi
grep -q "cannot get 1" "$work/again.err" || die "$(cat "$work/again.err")"

say "the chart is as it should be"
