// What TestDifferential reports: a difference, with as few requests as suffice, and a summary.

package differential

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// reportFailure reports a round's difference and the requests that cause it.
func (d *differential) reportFailure(seed uint64, proto int, failure string, few []request) {
	d.differences++
	var texts []string
	for _, q := range few {
		texts = append(texts, callText(q))
	}
	d.Errorf("after %d calls, RESP%d (%s=%d %s=1 repeats the round alone), %s\nafter:\n%s",
		d.calls, proto, seeds.Variable, seed, callsVariable, failure,
		strings.Join(texts[max(0, len(texts)-20):], "\n"))
}

// shrinkTime bounds the search for fewer requests.
const shrinkTime = 15 * time.Second

// shrunk removes requests as long as the rest still fails.
func (d *differential) shrunk(requests []request, fails func([]request) bool) []request {
	calls := d.calls
	defer func() { d.calls = calls }()
	end := time.Now().Add(shrinkTime)
	for size := len(requests) / 2; size > 0; size /= 2 {
		for from := 0; from < len(requests) && time.Now().Before(end); {
			rest := slices.Delete(slices.Clone(requests), from, min(from+size, len(requests)))
			if fails(rest) {
				requests = rest
			} else {
				from += size
			}
		}
	}
	return requests
}

// callText writes a request in the notation of scenario files.
func callText(q request) string {
	var lines []string
	for _, call := range q.calls {
		words := make([]string, len(call))
		for i, w := range call {
			words[i] = strconv.Quote(string(w))
		}
		if len(words) > 60 {
			words = append(words[:60], "…", strconv.Itoa(len(call)), "arguments")
		}
		lines = append(lines, strings.Join(words, " "))
	}
	text := strings.Join(lines, "; ")
	if q.multi {
		text = "MULTI; " + text + "; EXEC"
	}
	if q.script {
		text = "one script: " + text
	}
	if q.conn != 0 {
		text = "(connection " + strconv.Itoa(q.conn+1) + ") " + text
	}
	if q.db != 0 {
		text = "(db " + strconv.Itoa(q.db) + ") " + text
	}
	return text
}

// callsPerSuccess: each command must succeed at least once in so many calls.
const callsPerSuccess = 20_000

// report logs what was compared, and fails for commands that rarely succeeded: comparing only their
// errors proves little.
func (d *differential) report() {
	for line, n := range d.excused {
		d.Logf("%6d replies differ as docs/compatibility.md says: %s", n, line)
	}
	least := 0
	if d.calls >= 10*defaultCalls { // in fewer, rare success may be chance
		least = d.calls / callsPerSuccess
	}
	slices.SortStableFunc(d.specs, func(a, b *commands.Spec) int {
		return d.seen[a.FullName()] - d.seen[b.FullName()]
	})
	for i, spec := range d.specs {
		n := d.seen[spec.FullName()]
		if i < 10 {
			d.Logf("%6d calls of %s succeeded", n, spec.FullName())
		}
		if spec.Name != "kill" && n < least { // there is no script for SCRIPT KILL to stop
			d.Errorf("%d calls of %s succeeded, want at least %d", n, spec.FullName(), least)
		}
	}
	d.Logf("%d calls of %d commands; WATCH stopped %d transactions", d.calls, len(d.specs), d.unrun)
}

// differs records a difference, which ends the round.
func (d *differential) differs(what string, call [][]byte, got, want []byte) {
	d.failure = fmt.Sprintf("%s differs\n   call %s\n   got  %.600q\n   want %.600q", what,
		callText(request{calls: [][][]byte{call}}), got, want)
}
