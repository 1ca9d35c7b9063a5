{{- /* The image of a role, or that of all. Arguments: root, role. */ -}}
{{- define "swathmill.image" -}}
{{- $image := .root.Values.image -}}
{{- $all := printf "%s:%s" $image.repository ($image.tag | default .root.Chart.AppVersion) -}}
{{- if $image.digest }}{{ $all = printf "%s@%s" $image.repository $image.digest }}{{ end -}}
{{ get $image.roles .role | default $all }}
{{- end }}

{{- define "swathmill.labels" -}}
app.kubernetes.io/name: swathmill
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "swathmill.secret" -}}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secretName }}, key: {{ .key }}{{ if .optional }}, optional: true{{ end }}}}
{{- end }}

{{- /* What a pod of each process has in common. Arguments: root, name, role, module, cpu, memory, grace, disk; place, slots, limits. */ -}}
{{- define "swathmill.pod" -}}
{{- $root := .root -}}
terminationGracePeriodSeconds: {{ .grace }}
automountServiceAccountToken: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext: {runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
{{- if eq .role "reductions" }}
enableServiceLinks: false
{{- with $root.Values.reductions.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end }}
containers:
  - name: {{ .name }}
    {{- $runsPackages := and (eq .role "worker") (or .place (not $root.Values.reductions.replicas)) }}
    image: {{ include "swathmill.image" (dict "root" $root "role" (empty $runsPackages | ternary .role "")) }}
    command: [python, -P, -m, {{ .module }}]
    envFrom:
      {{- if eq .role "reductions" }}
      - configMapRef: {name: {{ $root.Release.Name }}-reductions}
      {{- else }}
      - configMapRef: {name: {{ $root.Release.Name }}-settings}
      {{- end }}
      {{- if eq .role "manager" }}
      - configMapRef: {name: {{ $root.Release.Name }}-mail}
      {{- end }}
    {{- if ne .role "reductions" }}
    env:
      {{- include "swathmill.secret" (dict "root" $root "name" "SWATHMILL_STORAGE" "key" "storage") | nindent 6 }}
      {{- include "swathmill.secret" (dict "root" $root "name" "SWATHMILL_REDIS_URL" "key" "redis-url") | nindent 6 }}
      {{- include "swathmill.secret" (dict "root" $root "name" "SWATHMILL_EARTHDATA_TOKEN" "key" "earthdata-token" "optional" true) | nindent 6 }}
      {{- if eq .role "worker" }}
      {{- with .place }}
      - {name: SWATHMILL_WORKER_PLACE, value: {{ . | quote }}}
      {{- end }}
      {{- with .slots }}
      - {name: SWATHMILL_SLOTS, value: {{ . | quote }}}
      {{- end }}
      {{- if and $root.Values.reductions.replicas (not .place) }}
      - {name: SWATHMILL_REDUCTION_POOL, value: "{{ $root.Release.Name }}-reductions:8002"}
      {{- end }}
      {{- else }}
      {{- include "swathmill.secret" (dict "root" $root "name" "SWATHMILL_SECRET" "key" "signing-secret") | nindent 6 }}
      - {name: SWATHMILL_SMTP_URL, value: {{ $root.Values.smtp.url | quote }}}
      {{- end }}
      {{- if eq .role "portal" }}
      {{- include "swathmill.secret" (dict "root" $root "name" "SWATHMILL_OIDC_CLIENT_SECRET" "key" "oidc-client-secret" "optional" true) | nindent 6 }}
      {{- end }}
      {{- if eq .role "manager" }}
      {{- include "swathmill.secret" (dict "root" $root "name" "SWATHMILL_SMTP_PASSWORD" "key" "smtp-password" "optional" true) | nindent 6 }}
      {{- end }}
    {{- end }}
    ports:
      - {name: probe, containerPort: 8001}
      {{- if eq .role "reductions" }}
      - {name: runs, containerPort: 8002}
      {{- end }}
      {{- if eq .role "portal" }}
      - {name: http, containerPort: 8000}
      {{- end }}
    startupProbe: {httpGet: {path: /livez, port: probe}, periodSeconds: 5, failureThreshold: 60}
    livenessProbe: {httpGet: {path: /livez, port: probe}, periodSeconds: 30, failureThreshold: 5}
    readinessProbe: {httpGet: {path: /readyz, port: probe}, periodSeconds: 10}
    resources:
      requests: {cpu: {{ .cpu | quote }}, memory: {{ .memory }}, ephemeral-storage: {{ .disk }}}
      limits:
        {{- dict "memory" .memory "ephemeral-storage" .disk | merge (.limits | default dict) | toYaml | nindent 8 }}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts:
      - {name: data, mountPath: /data}
      - {name: tmp, mountPath: /tmp}
      {{- if and $root.Values.archive.claim (ne .role "reductions") }}
      - {name: archive, mountPath: /archive, readOnly: true}
      {{- end }}
volumes:
  - {name: data, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
  {{- if and $root.Values.archive.claim (ne .role "reductions") }}
  - {name: archive, persistentVolumeClaim: {claimName: {{ $root.Values.archive.claim }}, readOnly: true}}
  {{- end }}
{{- end }}

{{- /* What attempts may take: 0.9 of a slot's memory is its attempt's; a third of the disk is for cached files, what the slots' attempts write is the rest. */ -}}
{{- define "swathmill.running" -}}
SWATHMILL_SLOTS: {{ .Values.workers.slots | quote }}
SWATHMILL_GRACE_SECONDS: {{ .Values.workers.graceSeconds | quote }}
SWATHMILL_SANDBOX: {{ .Values.sandbox }}
SWATHMILL_ATTEMPT_MEMORY_GB: {{ mulf .Values.workers.memoryGiOfSlot 0.9 | quote }}
SWATHMILL_ATTEMPT_DISK_GB: {{ divf (mulf .Values.workers.diskGi 0.6) .Values.workers.slots | quote }}
SWATHMILL_CACHE_GB: {{ divf .Values.workers.diskGi 4.0 | quote }}
{{- end }}
