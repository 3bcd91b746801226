package sim

import (
	"bytes"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

// result is what a run of a schedule showed.
type result struct {
	violations []string
	notes      []string
	hash       uint64 // of the history
	operations int
	answered   int
	undecided  int
	simulated  time.Duration
}

func (r result) String() string {
	return strings.Join(r.violations, "\n") + "\n" + strings.Join(r.notes, "\n")
}

var (
	firstSeed = flag.Int64("sim.seed", 1, "the first seed")
	seeds     = flag.Int64("sim.seeds", 5, "how many seeds")
)

// run runs a schedule.
func run(t *testing.T, sc *schedule, setup func(*simulation)) (r result) {
	// Twice: pools keep what was used in another bubble through one collection.
	runtime.GC()
	runtime.GC()
	cryptotest.SetGlobalRandom(t, sc.seed)
	synctest.Test(t, func(*testing.T) {
		defer seedRuntime(sc.seed)()
		s := newSimulation(sc)
		if setup != nil {
			setup(s)
		}
		for _, p := range s.processes {
			p.start()
		}
		s.play(sc)
		s.settle()
		r.simulated = time.Since(s.began)
		s.shutdown()
		r.operations = len(s.history)
		h := fnv.New64a()
		for _, o := range s.history {
			fmt.Fprintln(h, o)
			if !o.unknown {
				r.answered++
			}
		}
		r.hash = h.Sum64()
		s.check()
		r.violations, r.notes, r.undecided = s.violations, s.notes, s.undecided
	})
	return r
}

// play has clients work and things fail until the end of the schedule.
func (s *simulation) play(sc *schedule) {
	work := make([][]event, sc.clients)
	var faults []event
	for _, e := range sc.events {
		if e.client < 0 {
			faults = append(faults, e)
		} else {
			work[e.client] = append(work[e.client], e)
		}
	}
	until := func(at time.Duration) { time.Sleep(at - time.Since(s.began)) }
	for i, events := range work {
		c := s.addClient(i, i)
		s.working.Go(func() {
			for _, e := range events {
				until(e.at)
				if time.Since(s.began) > lengthOf+patience {
					break
				}
				c.perform(e.kind, e.args)
			}
		})
	}
	for _, e := range faults {
		until(e.at)
		s.inject(e)
	}
	until(lengthOf)
	s.working.Wait()
	s.healed.Wait()
}

// recovery is how long a cluster without faults may take to serve.
const recovery = 30 * time.Second

// settle checks that the cluster works once nothing fails any more, and that its nodes agree.
func (s *simulation) settle() {
	s.note("all is mended")
	for i, p := range s.processes {
		if p.gone {
			continue
		}
		c := s.addClient(50+i, i)
		s.working.Go(func() {
			defer c.close()
			began := time.Now()
			for n := 0; ; n++ {
				c.to = i
				if c.perform("set", []string{"final:" + p.id, fmt.Sprint(n)}) {
					return
				}
				if time.Since(began) > recovery {
					s.violation("%s does not serve %v after all is mended", p.id, recovery)
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	s.working.Wait()
	c := s.clients[len(s.clients)-1]
	for _, k := range s.queues() {
		for range 100 {
			if c.perform("LRANGE", []string{k, "0", "-1"}) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	s.compare()
}

// queues returns the lists that the history names.
func (s *simulation) queues() (keys []string) {
	seen := map[string]bool{}
	for _, o := range s.history {
		if (o.kind == "push" || o.kind == "pop") && !seen[o.args[0]] {
			seen[o.args[0]] = true
			keys = append(keys, o.args[0])
		}
	}
	return keys
}

// compare checks that the nodes hold equal state.
func (s *simulation) compare() {
	var differ string
	for began := time.Now(); time.Since(began) < recovery; time.Sleep(50 * time.Millisecond) {
		differ = ""
		first := ""
		for i, p := range s.processes {
			if p.gone {
				continue
			}
			c := &client{s: s, number: 90 + i, to: i, machine: s.net.boot("10.0.3.1")}
			replies, err := c.call(patience, []string{"RAFT", "BACKUP"})
			c.close()
			switch {
			case err != nil:
				differ = fmt.Sprintf("%s: %v", p.id, err)
			case first == "":
				first = replies[0]
			case replies[0] != first:
				differ = fmt.Sprintf("%s holds another state than the first node", p.id)
			}
		}
		if differ == "" {
			return
		}
	}
	s.violation("%v after all is mended: %s", recovery, differ)
}

// shutdown stops all nodes, and waits for all that runs.
func (s *simulation) shutdown() {
	for _, c := range s.clients {
		c.close()
	}
	for _, p := range s.processes {
		p.stop(0)
	}
	s.running.Wait()
}

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1)
	runtime.MemProfileRate = 0 // sampling draws random numbers
	if patched {
		debug.SetGCPercent(-1) // see run
		debug.SetMemoryLimit(2 << 30)
	}
	os.Exit(m.Run())
}

var repeats = flag.Int("sim.repeats", 1, "how often each seed runs")

// TestRepeats runs each seed again and again and compares the histories.
func TestRepeats(t *testing.T) {
	for seed := uint64(*firstSeed); seed < uint64(*firstSeed+*seeds); seed++ {
		var first *bytes.Buffer
		same := 0
		for i := range *repeats {
			var log bytes.Buffer
			run(t, newSchedule(seed), func(s *simulation) { s.log = &log })
			if i == 0 {
				first = &log
				continue
			}
			if bytes.Equal(first.Bytes(), log.Bytes()) {
				same++
				continue
			}
			a, b := strings.Split(first.String(), "\n"), strings.Split(log.String(), "\n")
			for j := range a {
				if j >= len(b) || a[j] != b[j] {
					t.Logf("seed %d run %d differs at line %d of %d:\n%s\n%s", seed, i, j, len(a),
						strings.Join(a[max(0, j-6):min(len(a), j+3)], "\n"),
						strings.Join(b[max(0, j-6):min(len(b), j+3)], "\n"))
					break
				}
			}
		}
		t.Logf("seed %d: %d of %d equal the first", seed, same, *repeats-1)
	}
}

func TestOne(t *testing.T) {
	for seed := uint64(*firstSeed); seed < uint64(*firstSeed+*seeds); seed++ {
		began := time.Now()
		r := run(t, newSchedule(seed), nil)
		t.Logf("seed %d: %d operations, %d answered, %v simulated in %v, hash %x, undecided %d", seed,
			r.operations, r.answered, r.simulated, time.Since(began), r.hash, r.undecided)
		if len(r.violations) > 0 {
			t.Errorf("seed %d:\n%s", seed, r)
		}
	}
}
