// Command runtimepatch makes Go's runtime deterministic for simulations. It writes an overlay for
// the go command into a directory (its argument): copies of a few files of the installed Go with
// small changes, which hold in testing/synctest's bubbles that have a seed:
//
//   - select, maps, math/rand and the order of woken goroutines follow the seed;
//   - a goroutine is not preempted, and keeps the processor in system calls;
//   - a goroutine that waits for a mutex is durably blocked: time passes while its holder sleeps.
//
// It fails if Go's sources are not as expected: then the changes must be looked at again.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// change replaces a text, which a file has once, by another.
type change struct{ file, old, new string }

var changes = []change{
	{"runtime/runtime2.go", "	waitReasonSynctestSelect:        true,\n",
		"	waitReasonSynctestSelect:        true,\n" +
			"	waitReasonSyncMutexLock: true, waitReasonSyncRWMutexRLock: true,\n" +
			"	waitReasonSyncRWMutexLock: true,\n"},
	{"runtime/synctest.go", "type synctestBubble struct {\n",
		"type synctestBubble struct {\n" +
			"	seed uint64 // state of the random numbers; 0: real ones\n"},
	{"runtime/synctest.go", "var bubbleGen atomic.Uint64", seeding + "var bubbleGen atomic.Uint64"},
	{"runtime/rand.go", "func cheaprand() uint32 {\n",
		"func cheaprand() uint32 {\n" +
			"	if x, ok := seeded(); ok {\n		return uint32(x)\n	}\n"},
	{"runtime/rand.go", "func rand() uint64 {\n",
		"func rand() uint64 {\n	if x, ok := seeded(); ok {\n		return x\n	}\n"},
	// the order of a map follows from the hashes of its keys, too
	{"runtime/alg.go", "key[i] = bootstrapRand()", "key[i] = uint64(i)"},
	{"runtime/alg.go", "hashkey[i] = uintptr(bootstrapRand())", "hashkey[i] = uintptr(2*i + 1)"},
	{"runtime/sema.go", "func internal_sync_nanotime() int64 {\n",
		"func internal_sync_nanotime() int64 {\n" +
			"	if b := getg().bubble; b != nil && b.seed != 0 {\n		return b.now\n	}\n"},
	{"runtime/proc.go", "	gp.preempt = true\n\n	// Every call in a goroutine checks",
		"	if b := gp.bubble; b != nil && b.seed != 0 {\n		return false\n	}\n" +
			"	gp.preempt = true\n\n	// Every call in a goroutine checks"},
	{"runtime/proc.go", "func retake(now int64) uint32 {\n",
		"func retake(now int64) uint32 {\n	if simulating.Load() {\n		return 0\n	}\n"},
	{"runtime/proc.go", "pp.schedtick%61 == 0 && !sched.runq.empty()",
		"pp.schedtick%61 == 0 && !sched.runq.empty() && !simulating.Load()"},
	{"runtime/proc.go", "func runqput(pp *p, gp *g, next bool) {\n",
		"func runqput(pp *p, gp *g, next bool) {\n" +
			"	if b := gp.bubble; next && b != nil && b.seed != 0 && b.next()&1 == 0 {\n" +
			"		next = false\n	}\n"},
}

// seeding is the code that the changes call. Package sim links to setSeed by name.
const seeding = `// simulating is set while a bubble has a seed.
var simulating atomic.Bool

// next returns the bubble's next random number.
//
//go:nosplit
func (b *synctestBubble) next() uint64 {
	b.seed ^= b.seed << 13
	b.seed ^= b.seed >> 7
	b.seed ^= b.seed << 17
	return b.seed * 0x9e3779b97f4a7c15 >> 16
}

// seeded returns a random number of the bubble that runs, if it has a seed. What the runtime does
// on its own stacks, such as growing a goroutine's, takes none: how often depends on its caches.
//
//go:nosplit
func seeded() (uint64, bool) {
	gp := getg()
	if gp != gp.m.curg || gp.bubble == nil || gp.bubble.seed == 0 {
		return 0, false
	}
	return gp.bubble.next()<<32 ^ gp.bubble.next(), true
}

//go:linkname setSeed github.com/coordd/coordd/internal/tests/sim.setSeed
func setSeed(seed uint64) {
	getg().bubble.seed = seed
	simulating.Store(seed != 0)
}

`

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "runtimepatch:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: runtimepatch DIR")
	}
	dir, err := filepath.Abs(os.Args[1])
	if err != nil {
		return err
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	texts := map[string]string{}
	for _, c := range changes {
		if texts[c.file] == "" {
			text, err := os.ReadFile(filepath.Join(src, c.file))
			if err != nil {
				return err
			}
			texts[c.file] = string(text)
		}
		if n := strings.Count(texts[c.file], c.old); n != 1 {
			return fmt.Errorf("%s has %d times %q: this version of Go is not known", c.file, n,
				c.old)
		}
		texts[c.file] = strings.Replace(texts[c.file], c.old, c.new, 1)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return err
		}
		overlay.Replace[filepath.Join(src, file)] = to
	}
	text, err := json.MarshalIndent(overlay, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o644)
}
