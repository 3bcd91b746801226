package operations

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// elsewhere is the headings of which nothing is run here, and why.
var elsewhere = map[string]string{
	"install.md#With Go":     "the module is not published; TestDevNodesStop runs coordd dev",
	"install.md#Docker":      "make containers runs what it can without Docker",
	"install.md#Kubernetes":  "make containers and TestKubernetesPods run what they can",
	"install.md#From source": "CI does these",

	"operations.md#Metrics":                     "make monitoring runs a Prometheus with it",
	"operations.md#Watching locks":              "what LOCKS takes, not a procedure",
	"operations.md#Leases":                      "what LEASE takes, not a procedure",
	"operations.md#A node whose state is wrong": "a line of a log; the laboratory flips bits",
	"operations.md#Users during an upgrade":     "an error; TestUsersAfterUpgrade",
	"operations.md#Feature levels":              "needs release 0.1; TestNextRelease and others",
	"operations.md#A script that holds up the cluster": "needs a fault of coordd; " +
		"TestSlowScriptIsRefused",
	"operations.md#A request that needs more work": "a setting; TestSettingsOfAllNodesAreCurrent",
	"operations.md#A restore drill":                "TestRestoreDrill runs it",
	"operations.md#Trying it out: `make chaos`":    "make proof runs it",

	"security.md#Where certificates come from": "TestOpenSSLRecipe, TestVaultRecipe and " +
		"TestCertManagerRecipe run them",
	"security.md#Audit trail": "a line of the trail; TestTrail",
}

// procedures is the rest, in an order in which each finds what it needs.
var procedures = []struct {
	document, heading string
	do                func(o *operation)
}{
	{"install.md", "From an archive", fromAnArchive},
	{"install.md", "Shell completion and the manual pages", completion},
	{"operations.md", "From one node to three, and to five", oneToThree},
	{"operations.md", "Removing a node", remove},
	{"operations.md", "Replacing a node that lost its disk", replace},
	{"operations.md", "Nodes that replace themselves", discovery},
	{"operations.md", "When a node ends by itself", ownUnit},
	{"security.md", "TLS in five minutes", certificates},
	{"security.md", "Certificates change", expiry},
	{"install.md", "On Debian, Ubuntu, Fedora, RHEL", debianPackage},
	{"operations.md", "Transferring leadership", transfer},
	{"operations.md", "Pointing clients at a cluster", whatClientsSee},
	{"operations.md", "What the quorum knows", quorum},
	{"operations.md", "Writes that leave nothing in the log", unlogged},
	{"operations.md", "Members", members},
	{"operations.md", "What to do next: `coordd doctor`", doctor},
	{"operations.md", "Restarting and upgrading", restart},
	{"operations.md", "The configuration file", configuration},
	{"operations.md", "The page", lookers},
	{"operations.md", "In a terminal", terminal},
	{"operations.md", "Clocks", clocks},
	{"operations.md", "Backup", backup},
	{"operations.md", "Scheduled backups", scheduled},
	{"operations.md", "To a bucket", bucket},
	{"operations.md", "Migrating from Redis or Valkey", migrate},
	{"operations.md", "A snapshot that cannot be read", refetch},
	{"operations.md", "Damaged files", damaged},
	{"security.md", "Users", users},
	{"security.md", "Locked out", lockedOut},
	{"operations.md", "A lost majority", lostMajority},
	{"operations.md", "An entry that no node can apply", beforeEntry},
	{"operations.md", "Restore", restore},
}

var documents = []string{"install.md", "operations.md", "security.md", "metrics.md"}

// TestEveryProcedureIsKnown: what a document shows of a terminal is run, or it is said why not.
func TestEveryProcedureIsKnown(t *testing.T) {
	known := map[string]bool{}
	for name := range elsewhere {
		known[name] = false
	}
	for _, p := range procedures {
		known[p.document+"#"+p.heading] = false
	}
	for _, d := range documents {
		for heading, bs := range blocks(t, d) {
			if _, ok := known[d+"#"+heading]; !ok {
				t.Errorf("docs/%s:%d: under %q is something that no procedure runs", d, bs[0].line,
					heading)
			}
			known[d+"#"+heading] = true
		}
	}
	for name, found := range known {
		if !found {
			t.Errorf("docs/%s has nothing to run", name)
		}
	}
	why := regexp.MustCompile(`\bTest[A-Z]\w+`)
	for name, reason := range elsewhere {
		for _, test := range why.FindAllString(reason, -1) {
			if !exists(t, test) {
				t.Errorf("docs/%s: there is no %s", name, test)
			}
		}
	}
}

func exists(t *testing.T, test string) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "grep", "-rlE", "--include=*_test.go",
		`^func `+test+`\(`, "../../..").Output()
	return err == nil && len(out) > 0
}

// operation is a procedure under way.
type operation struct {
	*testing.T
	document string
	left     []block
	machines []*machine // n1 to n4
	dist     string
	load     *load
}

// TestOperations does all procedures, one after the other.
func TestOperations(t *testing.T) {
	if os.Getenv("COORDD_OPERATIONS") == "" {
		t.Skip("SKIPPED: make operations runs it")
	}
	for _, tool := range []string{"debootstrap", "systemd-nspawn", "ip", "unshare", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("SKIPPED: " + err.Error())
		}
	}
	debian(t) // which needs the network of this machine, as building does
	t.Setenv(distVar, built(t))
	if !enter(t) {
		return
	}
	o := &operation{T: t, dist: built(t)}
	for i := range 4 {
		o.machines = append(o.machines, boot(t, i+1))
	}
	shown := map[string]map[string][]block{}
	for _, d := range documents {
		shown[d] = blocks(t, d)
	}
	for _, p := range procedures {
		began := time.Now()
		o.document, o.left = p.document, shown[p.document][p.heading]
		p.do(o)
		if len(o.left) > 0 {
			t.Fatalf("%s: nothing runs %q", o.place(), o.left[0].lines[0])
		}
		t.Logf("%s, %s: as it is written (%v)", p.document, p.heading,
			time.Since(began).Round(100*time.Millisecond))
	}
}

// distVar names the directory with a release that is built already.
const distVar = "COORDD_OPERATIONS_DIST"

// built returns the directory with the release of this commit, of which the documents speak.
func built(t *testing.T) string {
	t.Helper()
	if dist := os.Getenv(distVar); dist != "" {
		return dist
	}
	dir := filepath.Join(t.TempDir(), "source")
	for _, args := range [][]string{{"git", "clone", "-q", "--shared", "../../..", dir},
		{"sh", dir + "/deploy/release", "linux/amd64"}} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "VERSION=0.2.0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	return filepath.Join(dir, "dist")
}

func (o *operation) place() string { return fmt.Sprintf("docs/%s:%d", o.document, o.left[0].line) }

func (o *operation) next() block {
	o.Helper()
	if len(o.left) == 0 {
		o.Fatalf("docs/%s has no more blocks here", o.document)
	}
	b := o.left[0]
	o.left = o.left[1:]
	return b
}

// skip leaves out the next block, which is not for a machine, or which another test shows.
func (o *operation) skip(reason string) {
	o.Helper()
	o.Logf("%s: not run: %s", o.place(), reason)
	o.next()
}

// script returns the next block, which has no output, with edits: pairs of what the document says
// and what is so here.
func (o *operation) script(edits ...string) string {
	o.Helper()
	return o.edit(strings.Join(o.next().lines, "\n"), edits)
}

func (o *operation) edit(text string, edits []string) string {
	o.Helper()
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			o.Fatalf("there is no %q in\n%s", edits[i], text)
		}
	}
	return strings.NewReplacer(edits...).Replace(text)
}

// run runs the commands of the next block in one shell, with edits, and compares what they print.
// Where the document shows no output they have to succeed.
func (o *operation) run(m *machine, edits ...string) string {
	o.Helper()
	where := o.place()
	b := o.next()
	const mark = "\x01next\x01"
	var script strings.Builder
	script.WriteString(asOnATerminal)
	steps := b.steps()
	var commands []string
	for _, s := range steps {
		commands = append(commands, s.command)
	}
	for _, c := range strings.Split(o.edit(strings.Join(commands, mark), edits), mark) {
		fmt.Fprintf(&script, "%s\necho \"%s$?%s\"\n", c, mark, mark)
	}
	out, code, err := m.try(script.String())
	if err != nil || code != 0 {
		o.Fatalf("%s on %s: exit %d, %v\n%s", where, m.name, code, err, out)
	}
	parts := strings.Split(out, mark) // output, exit code, "\n"+output, exit code …
	for i, s := range steps {
		if 2*i+1 >= len(parts) {
			o.Fatalf("%s on %s: %s: no end\n%s", where, m.name, s.command, out)
		}
		got, status := strings.TrimPrefix(parts[2*i], "\n"), parts[2*i+1]
		if len(s.output) == 0 && status != "0" {
			o.Fatalf("%s on %s: %s: exit %s\n%s", where, m.name, s.command, status, got)
		}
		if lacks := missing(s.output, got); lacks != "" {
			o.Fatalf("%s on %s: %s\nprints not %q:\n%s", where, m.name, s.command, lacks, got)
		}
	}
	return out
}

// asOnATerminal has redis-cli print what it prints there, but into a pipe, and the rest go to a
// file.
const asOnATerminal = `redis-cli() {
	if [ -p /dev/stdout ]; then command redis-cli "$@"; else command redis-cli --no-raw "$@"; fi
}
exec 3>&1 >/tmp/said 2>&1
trap 'cat /tmp/said >&3' EXIT
`

// says compares the next block, which is an output or part of a log, with what was said.
func (o *operation) says(said string) {
	o.Helper()
	where := o.place()
	lines := o.next().lines
	if lacks := missing(append([]string{"…"}, append(lines, "…")...), said); lacks != "" {
		o.Fatalf("%s: nothing says %q:\n%s", where, lacks, said)
	}
}

// node returns the machine n1, n2 …
func (o *operation) node(n int) *machine { return o.machines[n-1] }

// start runs a command of a document that goes on, as a service of the machine.
func (o *operation) start(m *machine, unit, command string) {
	o.Helper()
	m.write(o.T, "/root/"+unit+".sh", command)
	m.must(o.T, "systemd-run --quiet --collect --unit "+unit+
		" --working-directory /root bash -c '. /root/"+unit+".sh'")
}

// typed gives commands to redis-cli, each of which has to succeed.
func (o *operation) typed(m *machine, commands string) {
	o.Helper()
	said := m.must(o.T, "redis-cli <<'END'\n"+commands+"\nEND")
	if strings.Count(said, "OK\n") != strings.Count(commands, "\n")+1 {
		o.Fatalf("docs/%s: %s\n%s", o.document, commands, said)
	}
}

// logOf is what such a service printed.
func logOf(unit string) string { return "journalctl --quiet --output cat --unit " + unit }

// everywhere runs a script of the test's own on n1 to n4 at once, if they have it.
func (o *operation) everywhere(script string, ms ...*machine) {
	o.Helper()
	done := make(chan string)
	for _, m := range ms {
		go func() {
			out, code, err := m.try("set -eu\n" + script)
			if err != nil || code != 0 {
				done <- fmt.Sprintf("%s: %s: exit %d, %v\n%s", m.name, script, code, err, out)
				return
			}
			done <- ""
		}()
	}
	for range ms {
		if wrong := <-done; wrong != "" {
			o.Error(wrong)
		}
	}
	if o.Failed() {
		o.FailNow()
	}
}
