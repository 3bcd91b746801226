// What lives here: the cache of scripts: its bounds, its records, and reads that use it at the same time.

package fsm

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

func TestScriptCache(t *testing.T) {
	e := newEngine(testTable())
	script := func(i int) string { return fmt.Sprintf("return %d", i) }
	known := func(i int) bool { return e.Exists([]byte(shaOf(script(i)))) }
	if _, err := e.Load([]byte(script(-1))); err != nil {
		t.Fatal(err)
	}
	evalOn(e, script(-2), false)
	if _, err := e.Load([]byte(script(-2))); err != nil { // is kept from now on
		t.Fatal(err)
	}
	for i := range maxCachedScripts {
		evalOn(e, script(i), false)
	}
	if !known(0) || e.Len() != maxCachedScripts+2 {
		t.Fatalf("%d scripts, the first known: %v", e.Len(), known(0))
	}
	evalOn(e, script(0), false)
	before := e.appendTo(nil)
	evalOn(e, script(9999), true)
	evalOn(e, script(1), true)
	if after := e.appendTo(nil); !bytes.Equal(before, after) {
		t.Error("EVAL_RO changed the cache")
	}
	evalOn(e, "x x", false)
	if after := e.appendTo(nil); !bytes.Equal(before, after) {
		t.Error("a script that does not compile changed the cache")
	}
	evalOn(e, script(maxCachedScripts), false)
	if !known(0) || known(1) || !known(2) || !known(-1) || !known(-2) || e.Len() != maxCachedScripts+2 {
		t.Errorf("known: %v %v %v %v %v of %d", known(0), known(1), known(2), known(-1), known(-2), e.Len())
	}
	restored := newEngine(e.table)
	if err := restored.load(e.appendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(restored.appendTo(nil), e.appendTo(nil)) || restored.Len() != e.Len() {
		t.Error("the restored cache differs")
	}
	for _, both := range []*engine{e, restored} {
		evalOn(both, script(2), false)
		evalOn(both, script(maxCachedScripts+1), false)
	}
	if !bytes.Equal(restored.appendTo(nil), e.appendTo(nil)) || known(3) {
		t.Error("the restored cache drops another script")
	}
	e.Flush()
	if e.Len() != 0 || known(-1) || !bytes.Equal(e.appendTo(nil), []byte{0, 0}) {
		t.Error("FLUSH left something")
	}
}

func TestLoadedScriptsHaveALimit(t *testing.T) {
	e := newEngine(testTable())
	e.loadedBytes = maxLoadedBytes - len("return 1")
	if _, err := e.Load([]byte("return 1")); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := e.Load([]byte("return 1")); err != nil {
		t.Errorf("what is loaded, again: %v", err)
	}
	if _, err := e.Load([]byte("return")); err != errScriptsFull {
		t.Errorf("past the limit: %v", err)
	}
	e.Flush()
	if _, err := e.Load([]byte("return")); err != nil {
		t.Errorf("after SCRIPT FLUSH: %v", err)
	}
}

func TestCorruptScriptRecords(t *testing.T) {
	e := newEngine(testTable())
	evalOn(e, "return 1", false)
	if _, err := e.Load([]byte("return 2")); err != nil {
		t.Fatal(err)
	}
	whole := e.appendTo(nil)
	for n := range whole {
		if newEngine(e.table).load(whole[:n]) == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(whole))
		}
	}
	twice := append([]byte{0, 2}, whole[2:11]...)
	for _, b := range [][]byte{append(whole[:len(whole):len(whole)], 0), append(twice, whole[2:11]...), {255, 255, 255, 255, 15, 0}, {0, 255, 255, 3}} {
		if newEngine(e.table).load(b) == nil {
			t.Errorf("%q was accepted", b)
		}
	}
	if err := newEngine(e.table).load(whole); err != nil {
		t.Error(err)
	}
}

// Reads may run scripts at the same time.
func TestConcurrentReads(t *testing.T) {
	s := newScriptNode()
	s.eval(t, `redis.call("set", "a", "1") return 1`)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				source := fmt.Sprintf(`local t = {} for i = 1, 50 do t[i] = redis.call("get", "a") end return #t + %d`, i%7+g)
				args := commandtest.Args("EVAL_RO", source, "0")
				run := commands.AppendRequest(nil, &commands.Request{Proto: 2, Cmds: [][][]byte{args}})
				got, want := string(s.node.machine.Read(nil, run, 1, 1)), fmt.Sprintf(":%d\r\n", 50+i%7+g)
				if got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
	wg.Wait()
}
