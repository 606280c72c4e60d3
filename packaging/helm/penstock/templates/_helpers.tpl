{{/* Names: 40 characters, so that what is added behind stays below Kubernetes' limits. */}}
{{- define "penstock.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "penstock.nodes" -}}{{ include "penstock.fullname" . }}-nodes{{- end -}}
{{- define "penstock.etcd" -}}{{ include "penstock.fullname" . }}-etcd{{- end -}}

{{- define "penstock.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "penstock.fullname" .) -}}
{{- end -}}
{{- define "penstock.authSecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-auth" (include "penstock.fullname" .)) -}}
{{- end -}}
{{- define "penstock.clusterSecret" -}}
{{- .Values.cluster.existingSecret | default (printf "%s-cluster" (include "penstock.fullname" .)) -}}
{{- end -}}
{{- define "penstock.tlsSecret" -}}
{{- .Values.cluster.tls.existingSecret | default (printf "%s-cluster-tls" (include "penstock.fullname" .)) -}}
{{- end -}}

{{/* "yes" or nothing. */}}
{{- define "penstock.clustered" -}}{{ if gt (int .Values.replicas) 1 }}yes{{ end }}{{- end -}}
{{- define "penstock.ownEtcd" -}}
{{- if and (include "penstock.clustered" .) (not .Values.etcd.endpoints) }}yes{{ end -}}
{{- end -}}

{{- define "penstock.etcdEndpoints" -}}
{{- if .Values.etcd.endpoints -}}
{{- join "," .Values.etcd.endpoints -}}
{{- else -}}
{{- $etcd := include "penstock.etcd" . -}}
{{- $places := list -}}
{{- range $number := until (int .Values.etcd.replicas) -}}
{{- $places = append $places (printf "%s-%d.%s.%s.svc:2379" $etcd $number $etcd $.Release.Namespace) -}}
{{- end -}}
{{- join "," $places -}}
{{- end -}}
{{- end -}}

{{- define "penstock.labels" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* (list $ "broker") */}}
{{- define "penstock.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "penstock.podSecurity" -}}
runAsNonRoot: true
runAsUser: 5672
runAsGroup: 5672
fsGroup: 5672
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "penstock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Of a Secret in the cluster; an empty map where there is none, or nobody to ask. */}}
{{- define "penstock.found" -}}
{{- $found := lookup "v1" "Secret" (index . 0).Release.Namespace (index . 1) -}}
{{- toJson (get $found "data" | default dict) -}}
{{- end -}}

{{/* A line of penstock.toml. YAML knows no integers beside its numbers, TOML does. */}}
{{- define "penstock.toml" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ printf "%.0f" . }}{{- else -}}{{ toJson . }}{{- end -}}
{{- end -}}

{{/* A StatefulSet of this name with another number of replicas: (list $ "name" replicas "why not"). */}}
{{- define "penstock.keepReplicas" -}}
{{- $root := index . 0 -}}
{{- $found := lookup "apps/v1" "StatefulSet" $root.Release.Namespace (index . 1) -}}
{{- $replicas := dig "spec" "replicas" 0 $found | int -}}
{{- if and $replicas (ne $replicas (index . 2 | int)) -}}
{{- fail (printf "StatefulSet %s has %d replicas and cannot get %d: %s" (index . 1) $replicas (index . 2 | int) (index . 3)) -}}
{{- end -}}
{{- end -}}
