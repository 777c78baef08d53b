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

{{/* A Go duration in seconds; a sign is not looked at. */}}
{{- define "kthena-router.seconds" -}}
{{- $unit := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 "us" 0.000001 "ns" 0.000000001 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(h|ms|us|ns|m|s)" (toString .) -1 -}}
{{- $number := regexFind "[0-9.]+" . -}}
{{- $sum = addf $sum (mulf (float64 $number) (get $unit (trimPrefix $number .))) -}}
{{- end -}}
{{- $sum -}}
{{- end }}

{{/* What would start and then not work. */}}
{{- define "kthena-router.check" -}}
{{- if and .Values.sessionBoost.enabled .Values.fairness.enabled }}
{{- fail "sessionBoost.enabled and fairness.enabled are both true: a model has one queue, and the router would not start; choose one" }}
{{- end }}
{{- range $path, $value := dict "drainDelay" .Values.drainDelay "drainTimeout" .Values.drainTimeout }}
{{- if hasPrefix "-" (toString $value) }}
{{- fail (printf "%s is %s: it cannot be negative" $path $value) }}
{{- end }}
{{- end }}
{{- /* Empty is left out, and then the router's default holds. */}}
{{- $delay := include "kthena-router.seconds" (.Values.drainDelay | default "0s") | float64 }}
{{- $timeout := 300.0 }}
{{- if not (has (toString .Values.drainTimeout) (list "" "<nil>")) }}
{{- $timeout = include "kthena-router.seconds" .Values.drainTimeout | float64 }}
{{- end }}
{{- if eq $timeout 0.0 }}
{{- fail "drainTimeout is 0: the router has no such setting; 1ms is the least, and empty is 5m" }}
{{- end }}
{{- $drain := ceil (addf $delay $timeout) | int64 }}
{{- if le (int64 .Values.terminationGracePeriodSeconds) $drain }}
{{- fail (printf "terminationGracePeriodSeconds is %d: it must be more than drainDelay + drainTimeout, %d s, or the kubelet cuts a drain" (int64 .Values.terminationGracePeriodSeconds) $drain) }}
{{- end }}
{{- if and .Values.autoscaling.enabled (not .Values.sessionBoost.enabled) (not .Values.fairness.enabled) (not .Values.autoscaling.targetCPUUtilizationPercentage) }}
{{- fail "autoscaling by the queue needs sessionBoost.enabled or fairness.enabled: without a strategy nothing is queued" }}
{{- end }}
{{- include "kthena-router.checkScaling" .Values.autoscaling }}
{{- include "kthena-router.checkPorts" .Values }}
{{- include "kthena-router.checkFairness" .Values.fairness }}
{{- include "kthena-router.checkRights" . }}
{{- if not (has (toString .Values.accessLog.output) (list "stdout" "stderr" "" "<nil>")) }}
{{- fail (printf "accessLog.output is %s: the container's root is read-only and has no volume for it; use stdout or stderr" .Values.accessLog.output) }}
{{- end }}
{{- if .Values.metrics.exposeOnRouterPort }}
{{- fail "metrics.exposeOnRouterPort: the router never serves metrics on the inference port; scrape metrics.port (the Service kthena-router-metrics, or metrics.serviceMonitor)" }}
{{- end }}
{{- end }}

{{- define "kthena-router.checkScaling" -}}
{{- if .enabled }}
{{- if gt (int64 .minReplicas) (int64 .maxReplicas) }}
{{- fail (printf "autoscaling.minReplicas is %d: it cannot be more than autoscaling.maxReplicas, %d" (int64 .minReplicas) (int64 .maxReplicas)) }}
{{- end }}
{{- $size := include "kthena-router.text" .targetQueueSize }}
{{- if not (regexMatch "^[0-9.]*[1-9]" $size) }}
{{- fail (printf "autoscaling.targetQueueSize is %s: expected a quantity above 0" $size) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "kthena-router.checkPorts" -}}
{{- $ports := list (list "port" .port) (list "metrics.port" .metrics.port) (list "debugPort" .debugPort) }}
{{- $seen := dict }}
{{- range $ports }}
{{- $number := include "kthena-router.text" (last .) }}
{{- if hasKey $seen $number }}
{{- fail (printf "%s and %s are both %s: each listener needs a port of its own" (get $seen $number) (first .) $number) }}
{{- end }}
{{- $_ := set $seen $number (first .) }}
{{- end }}
{{- end }}

{{- define "kthena-router.checkFairness" -}}
{{- if .enabled }}
{{- $limit := toString .queueTimeout }}
{{- if and (not (has $limit (list "" "<nil>"))) (or (hasPrefix "-" $limit) (eq 0.0 (include "kthena-router.seconds" $limit | float64))) }}
{{- fail (printf "fairness.queueTimeout is %s: the wait limit of fairness cannot be switched off; use a long one, such as 1h" $limit) }}
{{- end }}
{{- $window := toString .windowSize }}
{{- $seconds := include "kthena-router.seconds" $window | float64 }}
{{- if and (not (has $window (list "" "<nil>"))) (or (hasPrefix "-" $window) (lt $seconds 60.0) (gt $seconds 3600.0)) }}
{{- fail (printf "fairness.windowSize is %s: expected 1m to 1h" $window) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What reads the Kubernetes API without the rights to. */}}
{{- define "kthena-router.checkRights" -}}
{{- $v := .Values -}}
{{- $names := keys $v.env }}
{{- range $v.extraEnv }}
{{- $names = append $names .name }}
{{- end }}
{{- if and (not $v.kubernetes.enabled) (or (has "ROUTER_KUBERNETES" $names) (regexMatch "(?m)^[ \\t]*kubernetes[ \\t]*[=:]" $v.config)) }}
{{- fail "ROUTER_KUBERNETES (kubernetes in [router]): use kubernetes.enabled, which gives the rights to read the objects, too" }}
{{- end }}
{{- $may := $v.discovery.services.namespaces | default (list .Release.Namespace) }}
{{- range regexFindAll "(?m)^[ \\t]*service[ \\t]*[=:].*" $v.config -1 }}
{{- $service := regexReplaceAll "^[ \\t]*service[ \\t]*[=:]|[ \\t];.*" . "" | trim }}
{{- if not $v.discovery.services.enabled }}
{{- fail (printf "config: service = %s needs discovery.services.enabled, which gives the right to read EndpointSlices" $service) }}
{{- end }}
{{- $namespace := ternary (first (splitList "/" $service)) $.Release.Namespace (contains "/" $service) }}
{{- if not (has $namespace $may) }}
{{- fail (printf "config: service = %s is in the namespace %s, which is not in discovery.services.namespaces" $service $namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The names of the options in the [router] section of the INI text, a line each. */}}
{{- define "kthena-router.iniOptions" -}}
{{- $inside := false -}}
{{- range splitList "\n" . }}
{{- if hasPrefix "[" (trim .) }}
{{- $inside = regexMatch "^[ \\t]*\\[[ \\t]*router[ \\t]*\\]" . }}
{{- else if and $inside (regexMatch "^[ \\t]*[a-z0-9_]+[ \\t]*[=:]" .) }}
{{ regexFind "[a-z0-9_]+" . }}
{{- end }}
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
{{- $given := dict -}}
{{- range $typed }}
{{- $_ := set $taken (first .) true }}
{{- $text := include "kthena-router.text" (last .) }}
{{- if not (or (kindIs "invalid" (last .)) (eq $text "")) }}
{{- $_ := set $given (first . | trimPrefix "ROUTER_" | lower) (first .) }}
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
{{- $_ := set $given ($name | trimPrefix "ROUTER_" | lower) $name }}
- name: {{ $name }}
  value: {{ include "kthena-router.text" $value | quote }}
{{- end }}
{{- end }}
{{- range $v.extraEnv }}
{{- if hasKey $taken .name }}
{{- fail (printf "extraEnv: %s is set by another value of the chart" .name) }}
{{- end }}
{{- $_ := set $given (.name | trimPrefix "ROUTER_" | lower) .name }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- range splitList "\n" (include "kthena-router.iniOptions" $v.config) }}
{{- if hasKey $given . }}
{{- fail (printf "config: %s in [router] would have no effect, for the chart sets %s; use the chart's value, or env" . (get $given .)) }}
{{- end }}
{{- end }}
{{- end }}
