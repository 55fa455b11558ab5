{{/* The pod of a role: (dict "root" $ "role" "engine") */}}
{{- define "verbatim.pod" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $values := $root.Values -}}
{{- $node := index $values $role -}}
{{- $isEngine := eq $role "engine" -}}
{{- $gpus := ternary (int $values.engine.gpus) 0 $isEngine -}}
{{- $stop := $values.shutdown -}}
{{- $image := include "verbatim.image" (dict "root" $root "image" $node.image) -}}
{{- $models := and $isEngine (ne $values.models.volume.kind "none") -}}
metadata:
  labels:
    {{- include "verbatim.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
  annotations:
    checksum/config: {{ $values.config | sha256sum }}
    {{- with $node.podAnnotations }}{{- toYaml . | nindent 4 }}{{- end }}
spec:
  serviceAccountName: {{ include "verbatim.serviceAccount" $root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- if and $isEngine $values.engine.runtimeClassName }}
  runtimeClassName: {{ $values.engine.runtimeClassName }}
  {{- end }}
  {{- with $node.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  # Longer than the server takes to stop.
  terminationGracePeriodSeconds: {{ add (int $stop.settleSeconds) (int $stop.graceSeconds) (int $stop.drainSeconds) 10 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- $copies := and $models (not $values.models.volume.readOnly) }}
  {{- if or $copies $values.cluster.nats }}
  initContainers:
  {{- end }}
  {{- if $values.cluster.nats }}
    # The secrets of the cluster, before a node makes its own. A node that has others refuses to start, and says so.
    - name: secrets
      image: {{ $image | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      command: ["bash", "-euc"]
      args:
        - |
          for file in keys.pepper keys.signing; do
            [ -e "/var/lib/verbatim/$file" ] || install --mode=0600 "/cluster/$file" "/var/lib/verbatim/$file"
          done
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources:
        requests: {cpu: 10m, memory: 16Mi}
        limits: {memory: 64Mi}
      volumeMounts:
        - {name: state, mountPath: /var/lib/verbatim}
        - {name: cluster, mountPath: /cluster, readOnly: true}
  {{- end }}
  {{- if $copies }}
    # The models of the image, once. A copy that was interrupted has another name.
    - name: models
      image: {{ $image | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      command: ["bash", "-euc"]
      args:
        - |
          for model in /opt/verbatim/models/*; do
            to=/models/$(basename "$model")
            if [ ! -e "$to" ]; then
              part=$(mktemp -d /models/.copy.XXXXXX)
              cp -R "$model" "$part/model"
              # Another node may have been faster.
              mv -T "$part/model" "$to" || [ -e "$to" ]
              rm -rf "$part"
            fi
          done
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources:
        requests: {cpu: 100m, memory: 64Mi}
        limits: {memory: 512Mi}
      volumeMounts:
        - {name: models, mountPath: /models}
  {{- end }}
  containers:
    - name: verbatim
      image: {{ $image | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      ports:
        - {name: http, containerPort: 8000}
        - {name: metrics, containerPort: 9100}
      env:
        - {name: VERBATIM_LISTEN, value: "0.0.0.0:8000"}
        - {name: VERBATIM_METRICS__LISTEN, value: "0.0.0.0:9100"}
        - {name: VERBATIM_STATE_DIR, value: /var/lib/verbatim}
        # The root file system is read-only.
        - {name: VERBATIM_MODELS__KERNEL_DIR, value: /var/lib/verbatim/kernels}
        - {name: VERBATIM_SHUTDOWN__GRACE_SECONDS, value: {{ $stop.graceSeconds | quote }}}
        - {name: VERBATIM_HTTP__DRAIN_TIMEOUT_MS, value: {{ mul 1000 (int $stop.drainSeconds) | quote }}}
        {{- if $isEngine }}
        - {name: VERBATIM_MODELS__DEVICE, value: {{ $values.engine.device }}}
        - {name: VERBATIM_MODELS__MODEL, value: {{ $values.engine.model | quote }}}
        {{- if $models }}
        - {name: VERBATIM_MODEL_DIR, value: /models}
        {{- end }}
        {{- with $values.models.hub }}
        - {name: VERBATIM_MODELS__HUB__ADDRESS, value: {{ . | quote }}}
        {{- end }}
        {{- if not $gpus }}
        # Where the container runtime hands GPUs to all containers.
        - {name: NVIDIA_VISIBLE_DEVICES, value: void}
        {{- end }}
        {{- else }}
        - {name: VERBATIM_MODELS__DEVICE, value: none}
        {{- end }}
        {{- if $values.cluster.nats }}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - {name: VERBATIM_CLUSTER__NATS, value: {{ join "," $values.cluster.nats | quote }}}
        - {name: VERBATIM_CLUSTER__REPLICAS, value: {{ $values.cluster.replicas | quote }}}
        - {name: VERBATIM_CLUSTER__NODE, value: $(POD_NAME)}
        - {name: VERBATIM_CLUSTER__ADVERTISE, value: {{ $values.cluster.advertise | quote }}}
        - name: VERBATIM_JOBS__SECRET
          valueFrom: {secretKeyRef: {name: {{ $values.cluster.secret }}, key: jobs.secret}}
        {{- if $values.cluster.credentialsSecret }}
        - {name: VERBATIM_CLUSTER__CREDENTIALS_FILE, value: /etc/verbatim/broker/nats.creds}
        {{- end }}
        {{- end }}
        {{- if or $values.config $values.configSecret }}
        - {name: VERBATIM_CONFIG_FILE, value: /etc/verbatim/verbatim.toml}
        {{- end }}
        {{- if $values.tlsSecret }}
        - {name: VERBATIM_HTTP__TLS__CERTIFICATE, value: /etc/verbatim/tls/tls.crt}
        - {name: VERBATIM_HTTP__TLS__KEY, value: /etc/verbatim/tls/tls.key}
        {{- end }}
        {{- range $values.secrets }}
        - name: {{ .name }}
          valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}}
        {{- end }}
        {{- with $node.env }}{{- toYaml . | nindent 8 }}{{- end }}
      resources:
        {{- $resources := deepCopy $node.resources }}
        {{- if $gpus }}
        {{- $limits := merge (dict $values.engine.gpuResource $gpus) (default (dict) $resources.limits) }}
        {{- $_ := set $resources "limits" $limits }}
        {{- end }}
        {{- toYaml $resources | nindent 8 }}
      {{- if gt (int $stop.settleSeconds) 0 }}
      lifecycle:
        preStop:
          exec: {command: [sleep, {{ $stop.settleSeconds | quote }}]}
      {{- end }}
      # A model may have to be fetched before the node is ready.
      startupProbe:
        httpGet: {path: /readyz, port: http{{ if $values.tlsSecret }}, scheme: HTTPS{{ end }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ div (add (int $values.probes.startSeconds) 4) 5 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http{{ if $values.tlsSecret }}, scheme: HTTPS{{ end }}}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 1
      # Fails only once a restart is all that helps (`engine.give_up_seconds`).
      livenessProbe:
        httpGet: {path: /livez, port: http{{ if $values.tlsSecret }}, scheme: HTTPS{{ end }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      volumeMounts:
        - {name: state, mountPath: /var/lib/verbatim}
        - {name: temporary, mountPath: /tmp}
        {{- if $models }}
        - {name: models, mountPath: /models, readOnly: {{ $values.models.volume.readOnly }}}
        {{- end }}
        {{- if or $values.config $values.configSecret }}
        - {name: config, mountPath: /etc/verbatim/verbatim.toml, subPath: verbatim.toml, readOnly: true}
        {{- end }}
        {{- if $values.tlsSecret }}
        - {name: tls, mountPath: /etc/verbatim/tls, readOnly: true}
        {{- end }}
        {{- if $values.cluster.credentialsSecret }}
        - {name: broker, mountPath: /etc/verbatim/broker, readOnly: true}
        {{- end }}
        {{- range $index, $file := $values.secretFiles }}
        - {name: secret-{{ $index }}, mountPath: {{ $file.path }}, readOnly: true}
        {{- end }}
  volumes:
    - name: temporary
      emptyDir: {}
    {{- if $models }}
    - name: models
      persistentVolumeClaim: {claimName: {{ include "verbatim.modelsClaim" $root }}, readOnly: {{ $values.models.volume.readOnly }}}
    {{- end }}
    {{- if $values.config }}
    - name: config
      configMap: {name: {{ include "verbatim.name" $root }}}
    {{- else if $values.configSecret }}
    - name: config
      secret: {secretName: {{ $values.configSecret }}, defaultMode: 0440}
    {{- end }}
    {{- with $values.tlsSecret }}
    - name: tls
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- if $values.cluster.nats }}
    - name: cluster
      secret: {secretName: {{ $values.cluster.secret }}, defaultMode: 0440}
    {{- end }}
    {{- with $values.cluster.credentialsSecret }}
    - name: broker
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- range $index, $file := $values.secretFiles }}
    - name: secret-{{ $index }}
      secret: {secretName: {{ $file.secret }}, defaultMode: 0440}
    {{- end }}
  {{- with $node.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $tolerations := $node.tolerations }}
  {{- if $gpus }}
  {{- $tolerations = prepend $tolerations (dict "key" $values.engine.gpuResource "operator" "Exists" "effect" "NoSchedule") }}
  {{- end }}
  {{- with $tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $node.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $node.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
