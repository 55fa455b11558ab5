{{/*
The reasons to add engines, once for both variants, as a YAML list:
  name    what the metric is called
  series  what it is made of
  of      pods: a value of each engine, whose mean should be `target`;
          all: a value of all nodes together, which divided by the number of engines should be `target`
  query   in PromQL, where PODS stands for a matcher and BY for the labels to keep
*/}}
{{- define "verbatim.reasons" -}}
{{- with .Values.autoscaling }}
{{- if .queueSeconds }}
- name: verbatim_queue_seconds
  series: stt_held_wait_seconds
  of: pods
  query: sum by (BY) (stt_held_wait_seconds{PODS})
  target: {{ .queueSeconds }}
{{- end }}
{{- if .streamUse }}
- name: verbatim_stream_use
  series: engine_estimated_stream_capacity
  of: pods
  query: >-
    sum by (BY) (engine_active_requests{PODS,kind="stream"})
    / clamp_min(sum by (BY) (engine_estimated_stream_capacity{PODS}), 1)
  target: {{ .streamUse }}
{{- end }}
{{- if .waitingJobs }}
- name: verbatim_waiting_jobs
  series: verbatim_jobs
  of: all
  query: sum by (BY) (verbatim_jobs{PODS,phase="queued"})
  target: {{ .waitingJobs }}
{{- end }}
{{- end }}
{{- end }}
