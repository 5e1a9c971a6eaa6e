{{- define "weir.name" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name }}
{{- if contains .Chart.Name .Release.Name }}{{ $name = .Release.Name }}{{ end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/component: {{ .Values.role | replace "_" "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "weir.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Where the configuration comes from: file, postgres, sqlite, or the control plane. */}}
{{- define "weir.source" -}}
{{- if eq .Values.role "data_plane" }}control-plane
{{- else if or .Values.declarativeConfig .Values.existingSecret .Values.existingConfigMap }}file
{{- else if .Values.postgres.host }}postgres
{{- else }}sqlite{{ end }}
{{- end }}

{{- define "weir.hasProxy" -}}
{{- if ne .Values.role "control_plane" }}yes{{ end }}
{{- end }}

{{/* Mistakes in the values that Kubernetes would accept. */}}
{{- define "weir.validate" -}}
{{- $source := include "weir.source" . }}
{{- if not (has .Values.role (list "traditional" "control_plane" "data_plane")) }}
{{- fail (printf "role: %q: write traditional, control_plane or data_plane" .Values.role) }}
{{- end }}
{{- if and (ne .Values.role "traditional") (not .Values.cluster.certificateSecret) }}
{{- fail "cluster.certificateSecret: name the Secret of `weir hybrid gen_cert`, which all nodes of a fleet share" }}
{{- end }}
{{- if and (eq .Values.role "data_plane") (not .Values.cluster.controlPlane) }}
{{- fail "cluster.controlPlane: write where the control plane is, as host:8005" }}
{{- end }}
{{- if and (eq .Values.role "control_plane") (eq $source "file") }}
{{- fail "declarativeConfig: a control plane needs a database: leave it out, and import the file over the Admin API" }}
{{- end }}
{{- if gt (len (compact (list .Values.declarativeConfig .Values.existingSecret .Values.existingConfigMap))) 1 }}
{{- fail "existingSecret: give one of declarativeConfig, existingSecret and existingConfigMap" }}
{{- end }}
{{- if and (eq $source "postgres") (not .Values.postgres.passwordSecret.name) }}
{{- fail "postgres.passwordSecret.name: name the Secret that has the password" }}
{{- end }}
{{- if and .Values.admin.enabled (not .Values.admin.authSecret.name) }}
{{- fail "admin.authSecret.name: name the Secret that has the hash of a token, as `weir admin token` prints it: the Admin API gives full control over the gateway" }}
{{- end }}
{{- if and (or (eq $source "sqlite") .Values.persistence.enabled) (or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled) }}
{{- fail "replicas: one node alone can use a volume: name postgres.host, or leave persistence out" }}
{{- end }}
{{- end }}

{{/* The settings of a node, as environment variables. */}}
{{- define "weir.env" -}}
- { name: WEIR_PREFIX, value: /usr/local/kong }
- { name: WEIR_ROLE, value: {{ .Values.role }} }
- { name: WEIR_STATUS_LISTEN, value: "0.0.0.0:8007" }
{{- if include "weir.hasProxy" . }}
- { name: WEIR_PROXY_LISTEN, value: "0.0.0.0:{{ .Values.proxy.http.containerPort }}, 0.0.0.0:{{ .Values.proxy.https.containerPort }} ssl http2" }
{{- end }}
{{- if eq (include "weir.source" .) "file" }}
- { name: WEIR_DATABASE, value: "off" }
- { name: WEIR_DECLARATIVE_CONFIG, value: /etc/weir/kong.yml }
{{- else if eq (include "weir.source" .) "control-plane" }}
- { name: WEIR_DATABASE, value: "off" }
- { name: WEIR_CLUSTER_CONTROL_PLANE, value: {{ .Values.cluster.controlPlane | quote }} }
{{- else if eq (include "weir.source" .) "postgres" }}
{{ include "weir.databaseEnv" . }}
{{- else }}
- { name: WEIR_DATABASE, value: sqlite }
{{- end }}
{{- if .Values.cluster.certificateSecret }}
- { name: WEIR_CLUSTER_CERT, value: /cluster/tls.crt }
- { name: WEIR_CLUSTER_CERT_KEY, value: /cluster/tls.key }
{{- end }}
{{- if .Values.admin.enabled }}
- { name: WEIR_ADMIN_LISTEN, value: "0.0.0.0:8001" }
- name: WEIR_ADMIN_AUTH
  valueFrom: { secretKeyRef: { name: {{ .Values.admin.authSecret.name }}, key: {{ .Values.admin.authSecret.key }} } }
{{- end }}
{{- include "weir.ownEnv" . }}
{{- end }}

{{- define "weir.databaseEnv" -}}
- { name: WEIR_DATABASE, value: postgres }
- { name: WEIR_PG_HOST, value: {{ .Values.postgres.host | quote }} }
- { name: WEIR_PG_PORT, value: {{ .Values.postgres.port | quote }} }
- { name: WEIR_PG_USER, value: {{ .Values.postgres.user | quote }} }
- { name: WEIR_PG_DATABASE, value: {{ .Values.postgres.database | quote }} }
- name: WEIR_PG_PASSWORD
  valueFrom: { secretKeyRef: { name: {{ .Values.postgres.passwordSecret.name }}, key: {{ .Values.postgres.passwordSecret.key }} } }
{{- end }}

{{- define "weir.ownEnv" -}}
{{- range $name, $value := .Values.env }}
- name: WEIR_{{ $name | upper }}
{{- if kindIs "map" $value }}
  {{- toYaml $value | nindent 2 }}
{{- else }}
  {{- /* Numbers are floats, which `quote` writes as 1e+06. */}}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "weir.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "weir.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: { type: RuntimeDefault }
{{- end }}
