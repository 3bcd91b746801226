// Command check decodes Kubernetes manifests strictly into the types of Kubernetes' API: unknown
// fields and values of a wrong type are errors. It knows the schemas of cert-manager and of the
// Prometheus operator only by name. With -rules it prints the alert rules as Prometheus reads them.
//
//	go run . [-rules] <manifests.yaml
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kinds has the type of each kind; nil: it is not checked.
var kinds = map[string]func() any{
	"v1 ConfigMap":                            func() any { return &core.ConfigMap{} },
	"v1 Service":                              func() any { return &core.Service{} },
	"apps/v1 StatefulSet":                     func() any { return &apps.StatefulSet{} },
	"batch/v1 Job":                            func() any { return &batch.Job{} },
	"batch/v1 CronJob":                        func() any { return &batch.CronJob{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policy.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return &networking.NetworkPolicy{} },
	"cert-manager.io/v1 Issuer":               nil,
	"cert-manager.io/v1 Certificate":          nil,
	"monitoring.coreos.com/v1 ServiceMonitor": nil,
	"monitoring.coreos.com/v1 PrometheusRule": nil,
}

func main() {
	rules := flag.Bool("rules", false, "print the alert rules")
	flag.Parse()
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var head struct {
			APIVersion, Kind string
			Spec             json.RawMessage
		}
		if err := yaml.Unmarshal(document, &head); err != nil {
			fail(err)
		}
		if head.Kind == "" {
			continue // comments
		}
		if *rules && head.Kind == "PrometheusRule" {
			fmt.Println(string(head.Spec)) // JSON is YAML
		}
		make, known := kinds[head.APIVersion+" "+head.Kind]
		if !known {
			fail(fmt.Errorf("unknown kind %s %s", head.APIVersion, head.Kind))
		}
		if make == nil {
			continue
		}
		object := make()
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			fail(fmt.Errorf("%s: %w", head.Kind, err))
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "check:", err)
	os.Exit(1)
}
