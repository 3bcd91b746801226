//go:build linux

package lab

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/tests/models"
)

// checkTraces checks what the nodes have recorded against the models.
func (r *run) checkTraces() {
	if r.traces == "" {
		return
	}
	files, _ := filepath.Glob(filepath.Join(r.traces, "*"))
	var events []trace.Event
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			r.problem("%v", err)
			return
		}
		for line := range bytes.Lines(text) {
			var e trace.Event
			if json.Unmarshal(line, &e) == nil { // a killed process leaves half of its last one
				events = append(events, e)
			}
		}
	}
	slices.SortStableFunc(events, func(a, b trace.Event) int { return int(a.At - b.At) })
	check := models.NewTrace()
	for _, e := range events {
		if err := check.Step(e); err != nil {
			r.problem("the models do not allow it: %v", err)
			return
		}
	}
	if len(events) == 0 {
		r.problem("no node has recorded anything")
	}
	r.did("%d events of %d processes are as the models allow", len(events), len(files))
}
