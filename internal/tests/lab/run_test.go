//go:build linux

// One run: a cluster, its clients, two faults, and the judgement.

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/netns"
)

const (
	// majorityLimit is how long a majority may need to serve majorityCalls during a single fault,
	// or slowCalls if the fault makes it slow.
	majorityLimit = 15 * time.Second
	majorityCalls = 100
	slowCalls     = 10

	// maxFiles limits the open files of a node without clients.
	maxFiles = 80
)

// run is a plan that is carried out.
type run struct {
	*site
	*plan
	begin time.Time
	works []*work

	fades bool // something beside the keys ends in time: only they are as before after a restart

	log    sync.Mutex
	acts   []string      // what happened
	faulty time.Duration // when the first fault began; 0: none has

	stopped   atomic.Bool  // the clients are to end
	overtaken atomic.Int64 // while something failed: those who waited for a lock
}

// now is the time since the run began.
func (r *run) now() time.Duration { return time.Since(r.begin) }

// quiet reports whether nothing had failed by then.
func (r *run) quiet(to time.Duration) bool {
	r.log.Lock()
	defer r.log.Unlock()
	return r.faulty == 0 || to < r.faulty
}

// fails notes that something is about to fail.
func (r *run) fails() {
	r.log.Lock()
	defer r.log.Unlock()
	if r.faulty == 0 {
		r.faulty = r.now()
	}
}

// did notes what happened.
func (r *run) did(format string, args ...any) {
	r.log.Lock()
	defer r.log.Unlock()
	r.acts = append(r.acts, fmt.Sprintf("%6.2f s  %s", r.now().Seconds(),
		fmt.Sprintf(format, args...)))
}

// perform carries out a plan.
func perform(t *testing.T, p *plan) *run {
	t.Helper()
	t.Logf("run %d, seed %d: %v", p.number, p.seed, p)
	s, err := newSite(p)
	r := &run{site: s, plan: p, begin: time.Now()}
	if s == nil {
		t.Fatal(err)
	}
	defer func() {
		r.keepFailure(t)
		s.close(t.Failed())
	}()
	if err != nil {
		t.Fatal(err)
	}
	r.load()
	r.finish()
	for _, w := range r.works {
		w.player.judge(w)
		for _, err := range w.odd {
			w.problem("the error does not say whether the command ran: %s", err)
		}
		if w.count[acked] == 0 {
			w.problem("nothing was acknowledged")
		}
	}
	r.restart()
	r.checkTraces()
	for _, problem := range r.found() {
		t.Error(problem)
	}
	t.Log(r.report())
	return r
}

// load has clients and faults at work until the faults are over and the cluster serves.
func (r *run) load() {
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	number := 0
	for i, w := range r.workloads {
		work := &work{workload: w, run: r, ledger: newLedger()}
		work.player = w.make(work)
		r.works = append(r.works, work)
		for seat := range actorsEach {
			a := &actor{work: work, id: seat, seat: seat, c: r.kind.make(r.site, number),
				rnd: rand.New(rand.NewPCG(r.seed, uint64(100*i+seat)))}
			number++
			work.actors = append(work.actors, a)
			clients.Go(func() {
				defer a.c.Close()
				a.act(ctx)
			})
		}
	}
	var inject sync.WaitGroup
	for i := range r.variants {
		inject.Go(func() { r.inject(i) })
	}
	inject.Wait()
	r.heal()
	began := r.now()
	if err := r.serve(serveLimit); err != nil {
		r.problem("%v", err)
	}
	if r.systemd.alive.Load() == 0 {
		r.problem("no node has told systemd that it is alive")
	}
	r.did("all nodes serve, %v later", (r.now() - began).Round(time.Millisecond))
	time.Sleep(max(r.lasts-r.now(), r.lasts/8)) // more load
	r.stopped.Store(true)
	stop()
	clients.Wait()
}

// inject lets one of the faults happen. Both last in the middle of the run, at random offsets.
func (r *run) inject(i int) {
	v := r.variants[i]
	rnd := rand.New(rand.NewPCG(r.seed, uint64(1+i)))
	part := func(least, most float64) time.Duration {
		return time.Duration((least + (most-least)*rnd.Float64()) * float64(r.lasts))
	}
	from, to := part(0.1, 0.35), part(0.5, 0.8)
	time.Sleep(from - r.now())
	r.did("begins: %s", v.name)
	if r.faults[i] != "nothing" {
		r.fails()
	}
	before := r.acknowledged()
	end := v.begin(&scene{run: r, rnd: rnd})
	if r.faults[1-i] == "nothing" && v.survives {
		wanted := majorityCalls
		if v.slow {
			wanted = slowCalls
		}
		if !await(majorityLimit, func() bool { return r.acknowledged() >= before+wanted }) {
			r.problem("only %d calls had replies in %v while %s", r.acknowledged()-before,
				majorityLimit, v.name)
		}
	}
	time.Sleep(max(to, from+v.least) - r.now())
	if end != nil {
		end()
	}
	r.did("ends: %s", v.name)
}

// acknowledged returns how many calls of all clients had replies.
func (r *run) acknowledged() (n int) {
	for _, w := range r.works {
		n += w.acknowledged()
	}
	return n
}

// heal has all nodes run that are members.
func (r *run) heal() {
	for _, n := range r.members() {
		if !n.running() {
			r.did("starts %s, which had ended: %s", n.id(), n.lastLine())
		}
		n.start()
	}
	for _, f := range r.later {
		f()
	}
}

// finish waits for equal states, and looks for what the faults have left behind.
func (r *run) finish() {
	if _, err := r.admin(r.all[0], 10*time.Second, "DEL", bigKey, "lab:rotates"); err != nil {
		r.problem("%v", err)
	}
	r.works[0].admin = redis.NewClient(&redis.Options{Addr: r.all[0].addr, MaxRetries: -1,
		ReadTimeout: 20 * time.Second})
	for _, w := range r.works {
		w.admin = r.works[0].admin
	}
	if _, err := r.states(); err != nil {
		r.problem("%v", err)
	}
}

// restart stops all nodes as an operator does, and compares what they hold before and after. No key
// expires meanwhile.
func (r *run) restart() {
	if !await(equalLimit, func() bool {
		info, err := r.works[0].admin.Info(context.Background(), "keyspace").Result()
		return err == nil && strings.Contains(info, "expires=0,")
	}) {
		r.problem("keys with a time to live remain")
	}
	for _, w := range r.works {
		for _, a := range w.actors {
			a.disconnect()
		}
	}
	if !await(equalLimit, func() bool { // those who subscribe are part of the state
		channels, err := r.works[0].admin.PubSubChannels(context.Background(), "*").Result()
		return err == nil && len(channels) == 0
	}) {
		r.problem("there are subscribers, and no clients")
	}
	keys, err := r.works[0].admin.DBSize(context.Background()).Result()
	if err != nil {
		r.problem("%v", err)
	}
	_ = r.works[0].admin.Close()
	before, err := r.states()
	if err != nil {
		r.problem("%v", err)
		return
	}
	for _, n := range r.members() {
		if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.pid())); err != nil ||
			len(open) > maxFiles && !r.needs(smallLog) {
			r.problem("%s has %d files open, %v", n.id(), len(open), err)
		}
	}
	for _, n := range r.members() {
		if !n.stop() {
			r.problem("%s did not stop cleanly: %s", n.id(), n.lastLine())
		}
	}
	for _, n := range r.all {
		if n.namespace != "" && len(netns.Processes(n.namespace)) > 0 {
			r.problem("processes of %s remain", n.id())
		}
	}
	for _, n := range r.members() {
		n.start()
	}
	after, err := r.states()
	if r.fades {
		before, after = lastRecords(before, int(keys)), lastRecords(after, int(keys))
	}
	if err != nil || after != before {
		r.problem("the state after a restart has %d bytes, and had %d (%v): before, after",
			len(after), len(before), err)
		for name, text := range map[string]string{"before": before, "after": after} {
			if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
				r.problem("%v", err)
			}
		}
	}
}

// report says what was done and checked.
func (r *run) report() string {
	count, reasons := map[outcome]int{}, map[outcome]map[string]int{}
	var b strings.Builder
	for _, act := range r.acts {
		fmt.Fprintf(&b, "\n    %s", act)
	}
	for _, w := range r.works {
		w.addTo(count, reasons)
		fmt.Fprintf(&b, "\n    %-16s %6d acknowledged, %5d refused, %4d unknown; longest wait "+
			"%.2f s", w.name, w.count[acked], w.count[refused], w.count[unknown],
			w.longest.Seconds())
	}
	if n := r.overtaken.Load(); n > 0 {
		fmt.Fprintf(&b, "\n    %d times somebody who waited for a lock was overtaken", n)
	}
	return fmt.Sprintf("run %d: %d acknowledged, %d refused, %d unknown, in %.1f s%s\n    "+
		"refused:%s\n    unknown:%s", r.number, count[acked], count[refused], count[unknown],
		r.now().Seconds(), b.String(), list(reasons[refused]), list(reasons[unknown]))
}

// keepFailure writes the histories beside logs and data, and says where.
func (r *run) keepFailure(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, w := range r.works {
		text, err := json.MarshalIndent(w.events, "", " ")
		if err == nil {
			err = os.WriteFile(filepath.Join(r.dir, w.name+".json"), text, 0o600)
		}
		if err != nil {
			t.Log(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "run.txt"),
		fmt.Appendln(nil, r.plan, r.report()), 0o600); err != nil {
		t.Log(err)
	}
	t.Logf("histories, pictures, logs and data directories are in %s", r.dir)
}
