// The alert rules and the dashboard in a real Prometheus, through a failover: make monitoring.

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

const (
	alertRules = "../../../deploy/prometheus/coordd-alerts.yml"
	dashboard  = "../../../deploy/grafana/coordd.json"
)

// monitor is a Prometheus that scrapes processes every second.
type monitor struct {
	t    *testing.T
	addr string
}

func startMonitor(t *testing.T, ps []*process, flags ...string) *monitor {
	t.Helper()
	rules, err := filepath.Abs(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, p := range ps {
		targets = append(targets, p.http)
	}
	config := map[string]any{
		"global":     map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{rules},
		"scrape_configs": []any{map[string]any{"job_name": "coordd",
			"static_configs": []any{map[string]any{"targets": targets}}}},
	}
	text, err := json.Marshal(config) // which is YAML too
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	m := &monitor{t, loopback(freePorts(t, 1)[0])}
	log := &wait.Buffer{}
	cmd := exec.Command("prometheus", append([]string{"--config.file", file,
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", m.addr},
		flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", log)
		}
	})
	wait.For(t, 30*time.Second, "Prometheus", func() bool {
		return httpStatus(m.addr, "/-/ready") == http.StatusOK
	})
	return m
}

// get decodes the data of an answer of the API.
func (m *monitor) get(path string, into any) {
	m.t.Helper()
	c := http.Client{Timeout: 10 * time.Second}
	resp, err := c.Get("http://" + m.addr + "/api/v1/" + path)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err = json.NewDecoder(resp.Body).Decode(&answer); err == nil && answer.Status == "success" {
		err = json.Unmarshal(answer.Data, into)
	}
	if err != nil || answer.Status != "success" {
		m.t.Fatalf("%s: %s %v", path, answer.Error, err)
	}
}

// query returns the values of an expression now, by instance, "" without one. Of several values of
// an instance it has the last.
func (m *monitor) query(expr string) map[string]float64 {
	m.t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	m.get("query?query="+url.QueryEscape(expr), &data)
	values := map[string]float64{}
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			m.t.Fatalf("%s: %v", expr, err)
		}
		values[r.Metric["instance"]] = v
	}
	return values
}

// alert returns the state of an alert: pending or firing, "" if it is neither. An instance of ""
// means any.
func (m *monitor) alert(name, instance string) string {
	m.t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	m.get("alerts", &data)
	for _, a := range data.Alerts {
		if a.Labels["alertname"] == name && (instance == "" || a.Labels["instance"] == instance) {
			return a.State
		}
	}
	return ""
}

// awaitAlert waits until an alert has a state.
func (m *monitor) awaitAlert(limit time.Duration, name, instance, state string) {
	m.t.Helper()
	wait.For(m.t, limit, fmt.Sprintf("%s of %q %q", name, instance, state), func() bool {
		return m.alert(name, instance) == state
	})
}

// TestAlertsInPrometheus looks at three nodes with Prometheus: what the rules and the dashboard
// name is there, every panel shows something, and the alerts of a failover come and go. A second
// Prometheus scrapes native histograms, which say the same.
func TestAlertsInPrometheus(t *testing.T) {
	if os.Getenv("COORDD_MONITORING") == "" {
		t.Skip("run by make monitoring")
	}
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	certs, _ := certsDir(t)
	ps := startProcessesWith(t, 3, func(p *process) {
		p.args = append(p.args, clientFlags(certs, p.id, loopback(freePorts(t, 1)[0]))...)
	}, "--lock-labels", "lock:")
	m := startMonitor(t, ps)
	native := startMonitor(t, ps, "--enable-feature=native-histograms")
	stop := loadForMonitor(t, ps)
	for _, p := range ps {
		if _, err := p.raft("SNAPSHOT"); err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, 30*time.Second, "commands on three nodes", func() bool {
		return len(m.query("sum by (instance) (rate(coordd_commands_total[10s])) > 0")) == 3
	})
	watchedAreScraped(t, m)
	rulesWork(t, m)
	panelsShow(t, m)
	failOver(t, m, ps)
	stop()
	nativeAgrees(t, m, native)
}

// loadForMonitor uses locks, and causes errors and denials, on every node until stop is called.
// Errors are expected: nodes die.
func loadForMonitor(t *testing.T, ps []*process) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, p := range ps {
		c := p.client()
		all.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("lock:%d", i%5)
				c.Do(ctx, "SET", key, p.id, "NX", "PX", 40)
				c.PExpire(ctx, key, 50*time.Millisecond)
				c.Eval(ctx, "if redis.call('get', KEYS[1]) == ARGV[1] then return "+
					"redis.call('del', KEYS[1]) end return 0", []string{key}, p.id)
				c.Get(ctx, "count")
				c.Incr(ctx, "count")
				c.LPush(ctx, "count", "of the wrong type")
				c.Do(ctx, "AUTH", "wrong")
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// watchedAreScraped fails if the rules or the dashboard name a metric that Prometheus does not
// have.
func watchedAreScraped(t *testing.T, m *monitor) {
	t.Helper()
	var names []string
	m.get("label/__name__/values", &names)
	have := map[string]bool{}
	for _, name := range names {
		have[name] = true
	}
	found := 0
	for _, file := range []string{alertRules, dashboard} {
		for _, name := range regexp.MustCompile(`\b(coordd|process|go)_[a-z_]+`).
			FindAllString(readFile(t, file), -1) {
			if found++; !have[name] {
				t.Errorf("%s names %s, which is not in a scrape", file, name)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d names were found", found)
	}
}

// rulesWork fails unless Prometheus evaluates all rules.
func rulesWork(t *testing.T, m *monitor) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	working := func() (n int) {
		m.get("rules", &data)
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					t.Fatalf("%s: %s", r.Name, r.LastError)
				}
				if r.Health == "ok" {
					n++
				}
			}
		}
		return n
	}
	want := strings.Count(readFile(t, alertRules), "- alert:")
	wait.For(t, 20*time.Second, fmt.Sprintf("%d rules", want), func() bool {
		return working() == want
	})
	for _, name := range []string{"CoorddNodeDown", "CoorddNoLeader", "CoorddLogFailing"} {
		if state := m.alert(name, ""); state != "" {
			t.Errorf("%s is %s before anything happened", name, state)
		}
	}
}

// panelsShow fails if a query of the dashboard has no result.
func panelsShow(t *testing.T, m *monitor) {
	t.Helper()
	var board any
	if err := json.Unmarshal([]byte(readFile(t, dashboard)), &board); err != nil {
		t.Fatal(err)
	}
	var exprs []string
	var find func(v any)
	find = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				find(e)
			}
		case map[string]any:
			for key, e := range v {
				if text, ok := e.(string); ok && key == "expr" {
					exprs = append(exprs, text)
				}
				find(e)
			}
		}
	}
	find(board.(map[string]any)["panels"])
	if len(exprs) < 40 {
		t.Errorf("only %d queries were found", len(exprs))
	}
	variables := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "20s",
		"$__range", "1m")
	for _, expr := range exprs {
		if expr = variables.Replace(expr); len(m.query(expr)) == 0 {
			t.Errorf("no result: %s", expr)
		}
	}
}

// failOver kills one leader after the other, and then starts them again.
func failOver(t *testing.T, m *monitor, ps []*process) {
	t.Helper()
	const leads = `coordd_raft_role{role="leader"} == 1`
	first, others := leader(t, ps)
	wait.For(t, 10*time.Second, "Prometheus knows the leader", func() bool {
		return len(m.query(leads)) == 1
	})
	first.kill()
	m.awaitAlert(10*time.Second, "CoorddNodeDown", first.http, "pending")
	second, last := leader(t, others)
	wait.For(t, 10*time.Second, "the next leader in Prometheus", func() bool {
		got := m.query(leads)
		return len(got) == 1 && got[second.http] == 1 && m.alert("CoorddNoLeader", "") == ""
	})
	if changes := m.query(`changes(coordd_raft_leader_changes_total[1m])`); changes[last[0].http] < 1 {
		t.Errorf("changes of leader: %v", changes)
	}
	second.kill()
	m.awaitAlert(10*time.Second, "CoorddNoLeader", "", "pending")
	m.awaitAlert(10*time.Second, "CoorddNotReady", last[0].http, "pending")
	m.awaitAlert(50*time.Second, "CoorddNoLeader", "", "firing")
	m.awaitAlert(70*time.Second, "CoorddNodeDown", first.http, "firing")
	for _, p := range []*process{first, second} {
		p.start()
	}
	for _, name := range []string{"CoorddNoLeader", "CoorddNodeDown", "CoorddNotReady"} {
		m.awaitAlert(30*time.Second, name, "", "")
	}
	wait.For(t, 10*time.Second, "commands on three nodes again", func() bool {
		return len(m.query("sum by (instance) (rate(coordd_commands_total[5s])) > 0")) == 3
	})
}

// nativeAgrees compares a histogram in classic and in native buckets, when nothing adds to it.
func nativeAgrees(t *testing.T, classic, native *monitor) {
	t.Helper()
	const name, of = "coordd_command_duration_seconds", `{command="lpush"}`
	one := func(m *monitor, expr string) float64 { return m.query(expr)[""] }
	wait.For(t, 10*time.Second, "equal counts", func() bool {
		n := one(native, "histogram_count(sum("+name+of+"))")
		return n > 0 && n == one(classic, "sum("+name+"_count"+of+")")
	})
	a, b := one(native, "histogram_sum(sum("+name+of+"))"), one(classic, "sum("+name+"_sum"+of+")")
	if math.Abs(a-b) > 1e-9*b {
		t.Errorf("sums: native %g, classic %g", a, b)
	}
	a = one(native, "histogram_quantile(0.5, sum("+name+of+"))")
	b = one(classic, "histogram_quantile(0.5, sum by (le) ("+name+"_bucket"+of+"))")
	if ratio := a / b; !(ratio > 0.4 && ratio < 2.5) { // classic buckets are that wide
		t.Errorf("medians: native %g, classic %g", a, b)
	}
}
