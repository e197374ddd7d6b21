{{- define "tollgate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name }}{{ end }}
{{- end }}

{{- define "tollgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* What Redis clients can fill: stores, the copy of one that is being written, connections, and long commands and transactions with
       their answers. In MiB. values.yaml explains it. */}}
{{- define "tollgate.memory" -}}
{{- $memory := 256 }}
{{- with .Values.resp }}
{{- if .enabled }}
{{- $connections := mul $.Values.maxConnections (ternary 160 80 (ne $.Values.tls.secret "")) }}
{{- $memory = add $memory 256 (mul (add .quotas 12) .quotaMemory) (div (add $connections 1023) 1024) }}
{{- end }}
{{- end }}
{{- $memory }}Mi
{{- end }}

{{- /* FILE.resp takes up to 3.5 times the memory of the stores, and is there twice while it is written. */}}
{{- define "tollgate.stateSize" -}}
{{- with .Values.resp }}
{{- add 256 (ternary (mul 7 .quotas .quotaMemory) 0 .enabled) }}Mi
{{- end }}
{{- end }}

{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
