package cluster

import (
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/tests/models"
)

// untraced are the tests whose nodes have several histories, and why.
var untraced = map[string]string{
	"TestForeignersAreNotAdded":                  "a node of another cluster",
	"TestEmptyMajority":                          "a majority lost its disks, and founds a cluster",
	"TestSeededAgain":                            "a backup is restored twice",
	"TestRecoverPassesOverWhatASnapshotReplaced": "a member recovers by itself",
}

// traced returns what checks the events of a cluster's nodes, in builds that record them.
func traced(t testing.TB) trace.To {
	if name, _, _ := strings.Cut(t.Name(), "/"); !trace.On || untraced[name] != "" {
		return nil
	}
	var mu sync.Mutex
	check, failed := models.NewTrace(), false
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		failed = true // the nodes outlive the test
	})
	return func(e trace.Event) {
		mu.Lock()
		defer mu.Unlock()
		if failed {
			return
		}
		if err := check.Step(e); err != nil {
			failed = true
			t.Errorf("the nodes do not keep to the models: %v", err)
		}
	}
}
