// One run of a schedule: work, faults, recovery, checks.

package sim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"runtime"
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

// run runs a schedule in a bubble of its own. Then the memory is collected, twice: pools keep what
// was used in the bubble through one collection. In a bubble there is none: it would change the
// order of goroutines.
func run(t *testing.T, sc *schedule, setup func(*simulation)) (r result) {
	defer runtime.GC()
	defer runtime.GC()
	cryptotest.SetGlobalRandom(t, sc.seed)
	synctest.Test(t, func(*testing.T) {
		defer seedRuntime(sc.seed)()
		s := newSimulation(sc)
		if setup != nil {
			setup(s)
		}
		if s.log != nil {
			s.net.Trace = s.trace
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
		s.checkSights()
		r.violations, r.notes, r.undecided = s.violations, s.notes, s.undecided
	})
	return r
}

// play has clients work and things fail until the end of the schedule.
func (s *simulation) play(sc *schedule) {
	work := make([][]event, sc.clients+len(watchers)+lockers)
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
				if watch := watchers[e.kind]; watch != nil {
					watch(c, e.args)
				} else {
					c.perform(e.kind, e.args)
				}
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
				if p.isDamaged() { // the others go on without it
					p.end()
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
	s.settleMessages()
	s.settleCaches()
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
			if p.gone || p.isDamaged() {
				continue
			}
			c := &client{s: s, number: 90 + i, to: i, machine: s.net.Boot("10.0.3.1")}
			replies, err := c.call(patience, []string{"RAFT", "BACKUP"})
			c.close()
			switch {
			case err != nil:
				differ = fmt.Sprintf("%s: %v", p.id, err)
			case first == "":
				first = replies[0]
			case replies[0] != first:
				differ = cmp.Or(s.difference(p.id, first, replies[0]), differ)
			}
		}
		if differ == "" {
			return
		}
	}
	s.violation("%v after all is mended: %s", recovery, differ)
}

// difference says where the states of the first node and of another one differ; "" if they do not.
func (s *simulation) difference(id, first, other string) string {
	a, b := s.records(first), s.records(other)
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf("%s holds another state than the first node: record %d is %.300q, "+
				"and not %.300q", id, i, y, x)
		}
	}
	if s.guessesMarks {
		return ""
	}
	return id + " holds another state than the first node"
}

// records returns the records of a snapshot. Where the cluster began on a feature level at which
// snapshots have no marks, nodes that loaded one have guessed them (ADR 0032): they are left out.
func (s *simulation) records(snapshot string) (records []string) {
	const (
		begin  = len("coordd snapshot\n") + 4 // and the version
		before = 3                            // records that are of no key; sometimes one more
		marks  = 0xc0
	)
	rest := []byte(snapshot[min(begin, len(snapshot)):])
	for len(rest) > 8 {
		size := binary.LittleEndian.Uint64(rest)
		if size == 0 || size > uint64(len(rest)-8) {
			break
		}
		record := rest[8 : 8+size]
		if len(records) >= before && size > 1 && s.guessesMarks {
			record[1] &^= marks
		}
		records = append(records, string(record))
		rest = rest[8+size:]
	}
	return records
}

// shutdown stops all nodes, and waits for all that runs.
func (s *simulation) shutdown() {
	for _, c := range s.clients {
		c.close()
	}
	for _, p := range s.processes {
		p.end()
	}
	s.running.Wait()
	// Simulated, and long enough for the dials that go-redis began and nobody waits for.
	time.Sleep(time.Minute)
}
