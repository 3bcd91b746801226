{{- define "coordd.name" -}}
{{- printf "%s" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "coordd.selector" -}}
app.kubernetes.io/name: coordd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "coordd.foundSelector" -}}
app.kubernetes.io/name: coordd-found
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "coordd.backupSelector" -}}
app.kubernetes.io/name: coordd-backup
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "coordd.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote -}}
{{- end -}}

{{- define "coordd.labels" -}}
{{ include "coordd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "coordd.domain" -}}
{{ include "coordd.name" . }}-peers.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "coordd.pods" -}}
{{- range $i := until (int .Values.replicas) -}}
{{- if $i }},{{ end -}}
{{ include "coordd.name" $ }}-{{ $i }}.{{ include "coordd.domain" $ }}:6379
{{- end -}}
{{- end -}}
