{{- define "kthena-router.name" -}}kthena-router{{- end }}

{{- define "kthena-router.selector" -}}
app.kubernetes.io/name: {{ include "kthena-router.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kthena-router.labels" -}}
{{ include "kthena-router.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "kthena-router.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "kthena-router.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{/* Does the router talk to the Kubernetes API? "true" or nothing. */}}
{{- define "kthena-router.usesApi" -}}
{{- if or .Values.kubernetes.enabled .Values.discovery.services.enabled }}true{{ end -}}
{{- end }}

{{/* Numbers of a values file are floating: 10000000 would become 1e+07. */}}
{{- define "kthena-router.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* A Go duration in whole seconds, rounded up. */}}
{{- define "kthena-router.seconds" -}}
{{- $unit := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 "us" 0.000001 "ns" 0.000000001 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(h|ms|us|ns|m|s)" (toString .) -1 -}}
{{- $number := regexFind "[0-9.]+" . -}}
{{- $sum = addf $sum (mulf (float64 $number) (get $unit (trimPrefix $number .))) -}}
{{- end -}}
{{- ceil $sum | int64 -}}
{{- end }}

{{/* What would start and then not work. */}}
{{- define "kthena-router.check" -}}
{{- if and .Values.sessionBoost.enabled .Values.fairness.enabled }}
{{- fail "sessionBoost.enabled and fairness.enabled are both true: a model has one queue, and the router would not start; choose one" }}
{{- end }}
{{- $drain := add (include "kthena-router.seconds" .Values.drainDelay | int64) (include "kthena-router.seconds" .Values.drainTimeout | int64) }}
{{- if le (int64 .Values.terminationGracePeriodSeconds) $drain }}
{{- fail (printf "terminationGracePeriodSeconds is %d: it must be more than drainDelay + drainTimeout, %d s, or the kubelet cuts a drain" (int64 .Values.terminationGracePeriodSeconds) $drain) }}
{{- end }}
{{- if and .Values.autoscaling.enabled (not .Values.sessionBoost.enabled) (not .Values.fairness.enabled) (not .Values.autoscaling.targetCPUUtilizationPercentage) }}
{{- fail "autoscaling by the queue needs sessionBoost.enabled or fairness.enabled: without a strategy nothing is queued" }}
{{- end }}
{{- end }}

{{/* The container's environment. Nothing that was set is dropped because it is 0 or false. */}}
{{- define "kthena-router.env" -}}
{{- $v := .Values -}}
{{- $typed := list
  (list "ROUTER_PORT" $v.port) (list "ROUTER_METRICS_PORT" $v.metrics.port) (list "ROUTER_DEBUG_PORT" $v.debugPort)
  (list "ROUTER_BACKENDS" $v.backends)
  (list "ENABLE_SESSION_BOOST" $v.sessionBoost.enabled) (list "ENABLE_FAIRNESS_SCHEDULING" $v.fairness.enabled)
  (list "ACCESS_LOG_ENABLED" $v.accessLog.enabled) (list "ACCESS_LOG_FORMAT" $v.accessLog.format) (list "ACCESS_LOG_OUTPUT" $v.accessLog.output)
  (list "LOG_LEVEL" $v.log.level) (list "LOG_FORMAT" $v.log.format)
  (list "DRAIN_DELAY" $v.drainDelay) (list "DRAIN_TIMEOUT" $v.drainTimeout) -}}
{{- if $v.sessionBoost.enabled -}}
{{- with $v.sessionBoost -}}
{{- $typed = concat $typed (list
  (list "SESSION_BOOST_HEADER" .header) (list "SESSION_BOOST_MAX_SESSIONS" .maxSessions) (list "SESSION_BOOST_INFLIGHT_PER_POD" .inflightPerPod)
  (list "SESSION_BOOST_GRACE_PERIOD" .gracePeriod) (list "SESSION_BOOST_TIMEOUT" .timeout) (list "SESSION_BOOST_MAX_OVERTAKES" .maxOvertakes)
  (list "SESSION_STICKY" .sticky) (list "SESSION_STICKY_WAIT" .stickyWait)) -}}
{{- end -}}
{{- end -}}
{{- if $v.fairness.enabled -}}
{{- with $v.fairness -}}
{{- $typed = concat $typed (list
  (list "FAIRNESS_USER_HEADER" .userHeader) (list "FAIRNESS_QUEUE_TIMEOUT" .queueTimeout) (list "FAIRNESS_WINDOW_SIZE" .windowSize)
  (list "FAIRNESS_INPUT_TOKEN_WEIGHT" .inputTokenWeight) (list "FAIRNESS_OUTPUT_TOKEN_WEIGHT" .outputTokenWeight)
  (list "FAIRNESS_MAX_CONCURRENT" .maxConcurrent) (list "FAIRNESS_MAX_QPS" .maxQPS)) -}}
{{- end -}}
{{- end -}}
{{- if $v.tls.enabled -}}
{{- $typed = concat $typed (list (list "ROUTER_TLS_CERT" "/etc/kthena-router-tls/tls.crt") (list "ROUTER_TLS_KEY" "/etc/kthena-router-tls/tls.key")) -}}
{{- end -}}
{{- if $v.upstreamTLS.configMap -}}
{{- $typed = append $typed (list "UPSTREAM_TLS_CA" (printf "/etc/kthena-router-ca/%s" $v.upstreamTLS.key)) -}}
{{- end -}}
{{- if $v.kubernetes.enabled -}}
{{- $typed = concat $typed (list (list "ROUTER_KUBERNETES" true) (list "ROUTER_KUBERNETES_NAMESPACE" $v.kubernetes.namespace)) -}}
{{- end -}}
{{- $taken := dict -}}
{{- range $typed }}
{{- $_ := set $taken (first .) true }}
{{- $text := include "kthena-router.text" (last .) }}
{{- if not (or (kindIs "invalid" (last .)) (eq $text "")) }}
- name: {{ first . }}
  value: {{ $text | quote }}
{{- end }}
{{- end }}
{{- range $name, $value := $v.env }}
{{- if hasKey $taken $name }}
{{- fail (printf "env.%s: the chart has a value of its own for it" $name) }}
{{- end }}
{{- $_ := set $taken $name true }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ $name }}
  value: {{ include "kthena-router.text" $value | quote }}
{{- end }}
{{- end }}
{{- range $v.extraEnv }}
{{- if hasKey $taken .name }}
{{- fail (printf "extraEnv: %s is set by another value of the chart" .name) }}
{{- end }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}
