package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coordd/coordd/internal/tests/detector"
)

// scrape returns the samples of a server by name and labels, histograms by their counts.
func scrape(t *testing.T, s *Server) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(Metrics.Collector(s.GiveMetrics))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

// TestMetricsAgree compares metrics with what INFO, LATENCY, SLOWLOG and ACL LOG show.
func TestMetricsAgree(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("CONFIG", "SET", "slowlog-log-slower-than", "0")
	c.raw(calls("SET a 1", "INCR a", "GET a", "GET", "NOSUCH", "SET b x PX 60000", "INCR b",
		"MULTI", "SET a 3", "INCR b", "EXEC", "EXEC", "AUTH wrong", "SET k v NX", "SET k v NX",
		"EVAL return{err='Odd'..string.char(32)..'word'} 0", "CONFIG SET maxmemory 1", "SET x y"))
	for range 18 {
		c.next()
	}
	c.call("CONFIG", "SET", "slowlog-log-slower-than", "-1")
	info := c.call("INFO", "everything")
	slow, _ := strconv.Atoi(strings.Trim(c.call("SLOWLOG", "LEN"), ":\r\n"))
	got := scrape(t, n.Server)
	field := func(name string) float64 {
		found := regexp.MustCompile(`(?m)^` + name + `:([0-9.]+)`).FindStringSubmatch(info)
		if found == nil {
			t.Fatalf("INFO has no %s:\n%s", name, info)
		}
		v, _ := strconv.ParseFloat(found[1], 64)
		return v
	}
	for metric, name := range map[string]string{
		"coordd_connections":                "connected_clients",
		"coordd_connections_max":            "maxclients",
		"coordd_connections_accepted_total": "total_connections_received",
		"coordd_denied_total auth":          "acl_access_denied_auth",
		"coordd_dry_runs_total hit":         "unlogged_writes",
		"coordd_dry_runs_total miss":        "vain_tries",
		"coordd_keys_expired_total":         "expired_keys",
		"coordd_memory_data_bytes":          "used_memory_dataset",
		"coordd_memory_data_limit_bytes":    "maxmemory",
		"coordd_scripts_cached":             "number_of_cached_scripts",
	} {
		if v, ok := got[metric]; !ok || v != field(name) {
			t.Errorf("%s %g, INFO says %g", metric, v, field(name))
		}
	}
	if got["coordd_slow_commands_total"] != float64(slow) {
		t.Errorf("%g slow commands, SLOWLOG has %d", got["coordd_slow_commands_total"], slow)
	}
	if got["coordd_commands_total set not_run"] != 1 ||
		got["coordd_commands_total unrecognized rejected"] != 1 {
		t.Errorf("of commands that did not run: %v", got)
	}
	agreeOnCommands(t, info, got)
	agreeOnErrors(t, info, got)
}

// agreeOnCommands compares the counts and the histograms of each command.
func agreeOnCommands(t *testing.T, info string, got map[string]float64) {
	t.Helper()
	all := regexp.MustCompile(`cmdstat_(\S+?):calls=(\d+),.*rejected_calls=(\d+),failed_calls=(\d+)`).
		FindAllStringSubmatch(info, -1)
	if len(all) < 8 {
		t.Fatal(info)
	}
	for _, m := range all {
		if m[1] == "info" || m[1] == "slowlog|len" {
			continue // INFO did not see itself
		}
		outcome := func(word string) float64 { return got["coordd_commands_total "+m[1]+" "+word] }
		ran := outcome("ok") + outcome("error")
		failed := outcome("error") + outcome("not_run") + outcome("unknown")
		have := fmt.Sprint(ran+outcome("not_run")+outcome("unknown"), outcome("rejected"), failed)
		if want := strings.Join(m[2:], " "); have != want {
			t.Errorf("%s: calls, rejected and failed are %s, INFO says %s", m[1], have, want)
		}
		if times := got["coordd_command_duration_seconds "+m[1]]; fmt.Sprint(times) != m[2] {
			t.Errorf("%s: %g durations for %s calls", m[1], times, m[2])
		}
	}
	byCertainty, byOutcome := 0.0, 0.0
	for name, v := range got {
		if strings.HasPrefix(name, "coordd_requests_total ") {
			byCertainty += v
		}
		if strings.HasPrefix(name, "coordd_commands_total ") {
			byOutcome += v
		}
	}
	if byCertainty != byOutcome || byCertainty == 0 {
		t.Errorf("%g requests by certainty, %g by outcome", byCertainty, byOutcome)
	}
}

// agreeOnErrors compares the error codes. A script's word is not shown.
func agreeOnErrors(t *testing.T, info string, got map[string]float64) {
	t.Helper()
	sum := 0.0
	for _, m := range regexp.MustCompile(`errorstat_([A-Z]+):count=(\d+)`).
		FindAllStringSubmatch(info, -1) {
		v := got["coordd_errors_total "+m[1]]
		if fmt.Sprint(v) != m[2] {
			t.Errorf("%s: %g errors, INFO says %s", m[1], v, m[2])
		}
		sum += v
	}
	if got["coordd_errors_total other"] != 1 || sum < 5 {
		t.Errorf("errors: %v", got)
	}
}

// Every code of an error is known to the metrics, and whatever scripts invent is one label, without
// keeping a code from being counted.
func TestCodesOfErrors(t *testing.T) {
	detector.Skip(t) // it works much
	code := regexp.MustCompile(`(?:[eE]rrorf?\(|Error +=|Error\{\w+,|Reply:)\s*"-?([A-Z]{2,24}) `)
	texts := map[string]bool{"CONFIG": true, "ACL": true, "OK": true} // no errors
	used := map[string]bool{}
	for _, dir := range []string{".", "../commands", "../fsm", "../fsm/script", "../cluster",
		"../internal/node"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range code.FindAllStringSubmatch(string(text), -1) {
				if used[m[1]] = true; !errorCodes[m[1]] && !texts[m[1]] {
					t.Errorf("%s: %s is not in errorCodes", file, m[1])
				}
			}
		}
	}
	for word := range errorCodes {
		if !used[word] {
			t.Errorf("no error has the code %s", word)
		}
	}

	// and those that the guarantees explain are among them
	text, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	_, promise, _ := strings.Cut(string(text), "\n### 4. ")
	promise, _, _ = strings.Cut(promise, "\n### ")
	named := regexp.MustCompile("`([A-Z]+)`").FindAllStringSubmatch(promise, -1)
	for _, m := range named {
		if !errorCodes[m[1]] {
			t.Errorf("the guarantees explain %s, which is not in errorCodes", m[1])
		}
	}
	if len(named) < 10 {
		t.Errorf("the guarantees explain %d codes", len(named))
	}

	n := start(t, nil)
	c := n.dial(t)
	letters := "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for i := range 2 * maxErrorKinds {
		c.call("EVAL", fmt.Sprintf("return redis.error_reply('X%c%c secret')", letters[i/26],
			letters[i%26]), "0")
	}
	c.call("SET", "k", "v")
	c.call("LPUSH", "k", "x")
	got := scrape(t, n.Server)
	if got["coordd_errors_total WRONGTYPE"] != 1 ||
		got["coordd_errors_total other"] != 2*maxErrorKinds {
		t.Errorf("%v", got)
	}
	for name := range got {
		if strings.HasPrefix(name, "coordd_errors_total X") {
			t.Errorf("a script's word is a label: %s", name)
		}
	}
}
