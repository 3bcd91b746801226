package wait

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that records with what it failed.
type failing struct {
	testing.TB
	name string
	with string
}

func (f *failing) Helper()        {}
func (f *failing) Name() string   { return f.name }
func (f *failing) Cleanup(func()) {}

func (f *failing) Fatalf(format string, args ...any) {
	f.with = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// fails runs a test that must fail, and returns with what it did.
func fails(t *testing.T, name string, test func(t testing.TB)) string {
	f := &failing{TB: t, name: name}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(f)
	}()
	<-done
	return f.with
}

// A wait that reaches its limit says for what, asks other processes, and shows the goroutines.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := ""
		Explain(&failing{name: "TestA"}, func() { asked += "A" })
		Explain(&failing{name: "TestAB"}, func() { asked += "B" })
		began := time.Now()
		for what, test := range map[string]func(testing.TB){
			"rain": func(t testing.TB) {
				For(t, time.Minute, "rain", func() bool { return false })
			},
			"a message": func(t testing.TB) {
				Receive(t, time.Minute, "a message", make(chan int))
			},
		} {
			with := fails(t, "TestA/sub", test)
			for _, want := range []string{what + ": not within 1m0s", "wait.TestExpiry"} {
				if !strings.Contains(with, want) {
					t.Errorf("it fails with %.100q, which lacks %q", with, want)
				}
			}
		}
		took := time.Since(began).Round(time.Minute)
		if asked != "AA" || took != 2*time.Minute {
			t.Errorf("asked %q, after %v", asked, took)
		}
	})
}

func TestWhatComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan int, 1)
		time.AfterFunc(time.Second, func() { ch <- 5 })
		if got := Receive(t, time.Minute, "a message", ch); got != 5 {
			t.Error(got)
		}
		began := time.Now()
		For(t, time.Minute, "noon", func() bool { return time.Since(began) > time.Second })
	})
}

// A wait is as patient as the machine is slow, but not for ever.
func TestPatience(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{
		0:                      time.Minute,
		time.Millisecond:       time.Minute,
		4 * time.Millisecond:   2 * time.Minute,
		100 * time.Millisecond: mostLate * time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := waiting{limit: time.Minute, began: time.Now()}
			for !w.isOver() {
				time.Sleep(w.begin() + late)
				w.end()
			}
			if took := time.Since(w.began).Round(time.Second); took != want {
				t.Errorf("%v late: it takes %v, want %v", late, took, want)
			}
		})
	}
}
