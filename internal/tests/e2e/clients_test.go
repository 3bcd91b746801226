package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/tier"
)

// TestClientPrograms runs the scenario programs of testdata/clients against a cluster of three
// processes: unmodified clients in other processes and languages, on every node, judged by
// outcomes.
func TestClientPrograms(t *testing.T) {
	tier.Check(t)
	// The programs do not test failover: a busy machine must not cause one.
	ps := startProcesses(t, 3, "--heartbeat-timeout", "3s")
	var addrs, singles []string
	for _, p := range ps {
		addrs = append(addrs, p.addr)
	}
	for range 3 {
		singles = append(singles, startProcesses(t, 1)[0].addr)
	}
	env := append(os.Environ(), "COORDD_ADDRS="+strings.Join(addrs, ","),
		"COORDD_SINGLES="+strings.Join(singles, ","))
	for _, program := range []struct {
		name  string
		needs []string // commands on the path, or files relative to the top of the repository
		args  []string
	}{
		{"go-redis", []string{"go"}, []string{"go", "run", "./testdata/clients/go"}},
		{"node-redis", []string{"node", "testdata/clients/node/node_modules/redis"},
			[]string{"node", "testdata/clients/node/run.js", "redis"}},
		{"ioredis", []string{"node", "testdata/clients/node/node_modules/ioredis"},
			[]string{"node", "testdata/clients/node/run.js", "ioredis"}},
		{"redis-cli", []string{"redis-cli"}, []string{"sh", "testdata/clients/cli/run.sh"}},
	} {
		t.Run(program.name, func(t *testing.T) {
			for _, need := range program.needs {
				if missing(need) {
					t.Skipf("SKIPPED: %s not found", need)
				}
			}
			cmd := exec.Command(program.args[0], program.args[1:]...)
			cmd.Dir = "../../.."
			cmd.Env = env
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			t.Logf("%s:\n%s", strings.Join(program.args, " "), out.String())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "\nok ") ||
				strings.Contains(out.String(), "SKIPPED") {
				t.Fatal("the program ran not all scenarios")
			}
		})
	}
}

// missing reports whether a command is not on the path, or a file, relative to the top of the
// repository, does not exist.
func missing(need string) bool {
	if strings.Contains(need, "/") {
		_, err := os.Stat("../../../" + need)
		return err != nil
	}
	_, err := exec.LookPath(need)
	return err != nil
}
