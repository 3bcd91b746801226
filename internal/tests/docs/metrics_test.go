// docs/metrics.md derives from the declarations of the metrics; go test ./internal/tests/docs
// -update writes it. The dashboard and the alert rules name only metrics that exist.

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/metrics"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/server"
)

const metricsDocHead = `# Metrics

Derived from the code: change the declaration, then run ` +
	"`go test ./internal/tests/docs -update`" + `.

With ` + "`--http-listen`" + ` a node serves these on ` + "`/metrics`" + `, for Prometheus. It counts
for itself: sum over the nodes. [Operations](operations.md#metrics) says how to scrape and watch
them, [security](security.md#metrics) what they reveal.

- ` + "`CONFIG RESETSTAT`" + ` sets to 0 what it resets in ` + "`INFO`" + `: both show the same counters.
  Prometheus takes that for a restart.
- A sample that is missing has never been counted, or does not apply: followers do not know how far
  others lag. While a node loads its data it shows nothing of Raft. If it is busy for longer than
  0.3 s, a scrape lacks keys, data and scripts.
- Histograms of times and sizes of the server and of Raft have classic buckets, and are native
  histograms for a Prometheus that scrapes those. Their sums are within 1 %. The alert rules and the
  dashboard read classic buckets, which such a Prometheus drops unless it is told to keep both, by
  ` + "`always_scrape_classic_histograms`" + ` (before 3.0 ` + "`scrape_classic_histograms`" + `).
- Labels are bounded: the commands that exist, error codes that consist of capital letters (128 at
  most), members, databases, 101 labels of locks.
- Besides these there are the ` + "`go_…` and `process_…`" + ` metrics of every Go program.
`

// metricSets are the metrics by room.
var metricSets = []struct {
	title string
	set   *metrics.Set
}{{"Clients, commands and memory", &server.Metrics}, {"Raft, log and snapshots",
	&cluster.Metrics}, {"Locks, windows and build", &node.Metrics}}

func metricsDoc() string {
	var b strings.Builder
	b.WriteString(metricsDocHead)
	for _, s := range metricSets {
		fmt.Fprintf(&b, "\n## %s\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n",
			s.title)
		for _, d := range s.set.Defs() {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Kind,
				strings.Join(d.Labels, ", "), cell(d.Help))
		}
	}
	return b.String()
}

func TestMetricsDoc(t *testing.T) { keep(t, "docs/metrics.md", metricsDoc()) }

// TestMetricNames checks Prometheus's conventions.
func TestMetricNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range metricSets {
		for _, d := range s.set.Defs() {
			if !regexp.MustCompile(`^coordd(_[a-z]+)+$`).MatchString(d.Name) || seen[d.Name] {
				t.Errorf("%s: a bad name, or declared twice", d.Name)
			}
			seen[d.Name] = true
			if total := strings.HasSuffix(d.Name, "_total"); total != (d.Kind == metrics.Counter) {
				t.Errorf("%s: counters end in _total, others do not", d.Name)
			}
			if regexp.MustCompile(`_(ms|milliseconds|us|kib|mib|minutes)\b`).MatchString(d.Name) {
				t.Errorf("%s: not in a base unit", d.Name)
			}
			if !strings.HasSuffix(d.Help, ".") {
				t.Errorf("%s: its help is no sentence", d.Name)
			}
		}
	}
}

// TestAlertRules has promtool check the rules and run their tests.
func TestAlertRules(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED: ", err)
	}
	for _, call := range [][]string{{"check", "rules", "coordd-alerts.yml"},
		{"test", "rules", "coordd-alerts-test.yml"}} {
		cmd := exec.Command(tool, call...)
		cmd.Dir = filepath.Join(root, "deploy", "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", call, err, out)
		}
	}
}

var (
	alertRule  = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
	runbookURL = regexp.MustCompile(`(?m)^ *runbook_url: (\S+)$`)
	alertTitle = regexp.MustCompile(`(?m)^## (Coordd\w+)$`)
)

// TestAlertsAreExplained: docs/alerts.md has a section for each alert, in the order of the rules,
// and each alert links to its own.
func TestAlertsAreExplained(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rules, links, titles := read("deploy/prometheus/coordd-alerts.yml"), []string{}, []string{}
	for _, m := range runbookURL.FindAllStringSubmatch(rules, -1) {
		links = append(links, m[1])
	}
	for _, m := range alertTitle.FindAllStringSubmatch(read("docs/alerts.md"), -1) {
		titles = append(titles, m[1])
	}
	for i, m := range alertRule.FindAllStringSubmatch(rules, -1) {
		want := "https://github.com/coordd/coordd/blob/main/docs/alerts.md#" + strings.ToLower(m[1])
		if i >= len(links) || links[i] != want {
			t.Errorf("%s does not link to %s", m[1], want)
		}
		if i >= len(titles) || titles[i] != m[1] {
			t.Errorf("docs/alerts.md does not explain %s, number %d", m[1], i+1)
		}
	}
}

// TestWatchedMetricsExist finds the names of metrics in the dashboard, the rules and their tests.
func TestWatchedMetricsExist(t *testing.T) {
	known := map[string]bool{}
	for _, s := range metricSets {
		for _, d := range s.set.Defs() {
			known[d.Name] = true
			if d.Kind == metrics.Buckets {
				for _, part := range []string{"_bucket", "_sum", "_count"} {
					known[d.Name+part] = true
				}
			}
		}
	}
	files, _ := filepath.Glob(filepath.Join(root, "deploy", "*", "coordd*.*"))
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bcoordd_[a-z_]+`).FindAllString(string(text), -1) {
			found++
			if !known[name] {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d names were found in %q", found, files)
	}
}
