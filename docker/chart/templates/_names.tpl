{{- define "verbatim.name" -}}
{{- $release := .Release.Name -}}
{{- ternary $release (printf "%s-verbatim" $release) (contains "verbatim" $release) | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{/* The job label of the metrics is the first of these: docker/prometheus/alerts.yaml reads it. */}}
{{- define "verbatim.selector" -}}
app.kubernetes.io/name: verbatim
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "verbatim.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "verbatim.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* image of a role: (dict "root" $ "image" .Values.engine.image) */}}
{{- define "verbatim.image" -}}
{{- $registry := .root.Values.image.registry | trimSuffix "/" -}}
{{- $path := ternary .image.repository (printf "%s/%s" $registry .image.repository) (empty $registry) -}}
{{- if .image.digest -}}{{ $path }}@{{ .image.digest }}{{- else -}}{{ $path }}:{{ default .root.Chart.AppVersion .image.tag }}{{- end -}}
{{- end }}

{{- define "verbatim.serviceAccount" -}}
{{- default (include "verbatim.name" .) .Values.serviceAccount.name -}}
{{- end }}

{{- define "verbatim.modelsClaim" -}}
{{- ternary .Values.models.volume.claim (printf "%s-models" (include "verbatim.name" .)) (eq .Values.models.volume.kind "existing") -}}
{{- end }}
