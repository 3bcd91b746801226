package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// fullLog refuses entries while its disk is said to be full. It takes its time: further messages
// come meanwhile.
type fullLog struct {
	raft.LogStore
	full             *atomic.Bool
	refused, written *atomic.Int64
}

func (f fullLog) StoreLogs(logs []*raft.Log) error {
	if f.full.Load() {
		for more := f.written.Load() + 10; f.full.Load() && f.written.Load() < more; {
			time.Sleep(time.Millisecond) // between two looks
		}
		f.refused.Add(1)
		return errors.New("no space left on device")
	}
	return f.LogStore.StoreLogs(logs)
}

// TestRefusedEntriesComeLater: a member that refuses entries gets them when it takes them again,
// whatever was on its way to it meanwhile. Nothing but the answers of the transport tells the
// leader: heartbeats go on.
func TestRefusedEntriesComeLater(t *testing.T) {
	simulated(t, func(t *testing.T) {
		full, refused, written := map[string]*atomic.Bool{}, &atomic.Int64{}, &atomic.Int64{}
		c := newCluster(t, 3, func(cfg *Config) {
			f := &atomic.Bool{}
			full[cfg.ID] = f
			cfg.wrapLog = func(s raft.LogStore) raft.LogStore {
				return fullLog{s, f, refused,
					written}
			}
		})
		lead, follower := c.leader(), c.followers()[0]
		// before the nodes are closed, which wait for the disk
		t.Cleanup(func() { full[follower.cfg.ID].Store(false) })
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for w := range 8 { // several messages are on their way at a time
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					if _, err := lead.write(context.Background(), []byte(fmt.Sprint(w, ":", i)),
						1); err != nil {
						t.Errorf("write: %v", err)
						return
					}
					written.Add(1)
				}
			})
		}
		for round := range 10 { // without pipeline it stands still in every second round or so
			before := refused.Load()
			full[follower.cfg.ID].Store(true)
			eventually(t, "entries to be refused", func() bool { return refused.Load() > before })
			more := written.Load() + 20
			eventually(t, "writes of the majority", func() bool { return written.Load() >= more })
			full[follower.cfg.ID].Store(false)
			last := lead.raft.LastIndex()
			eventually(t, fmt.Sprintf("round %d: the follower to have what it refused", round),
				func() bool {
					return follower.raft.LastIndex() >= last
				})
		}
		stop()
		wg.Wait()
		c.converged()
	})
}

// sentPipeline counts what is sent, and has the newest messages.
type sentPipeline struct {
	raft.AppendPipeline
	sent   int
	newest []*raft.AppendEntriesRequest
}

func (p *sentPipeline) AppendEntries(req *raft.AppendEntriesRequest,
	_ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.sent++
	p.newest = append(p.newest, req)
	return nil, nil
}

// A leader that is silent sends nothing by a pipeline that it has opened before.
func TestSilentLeaderSendsNoEntries(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var silent atomic.Bool
		lead, inner := newCluster(t, 1, nil).leader(), &sentPipeline{}
		p := &pipeline{AppendPipeline: inner, t: &transport{n: lead},
			may: func() bool { return true }, stalled: &silent,
			failed: make(chan raft.AppendFuture, 1), sending: make(chan struct{}, 1)}
		for _, quiet := range []bool{false, true, false} {
			silent.Store(quiet)
			before := inner.sent
			answer, err := p.AppendEntries(&raft.AppendEntriesRequest{
				Term: lead.raft.CurrentTerm()}, &raft.AppendEntriesResponse{})
			// a silent leader opens another pipeline before it sends again
			wants := !quiet && before == 0
			if sent := inner.sent > before; sent != wants || err != nil {
				t.Errorf("silent: %t, sent: %t, %v", quiet, sent, err)
			}
			if !wants && (answer.Error() == nil || answer.Response().Success) {
				t.Errorf("silent: %t, the answer is a good one", quiet)
			}
		}
		if answer := <-p.failed; !errors.Is(answer.Error(), errStalled) || len(p.failed) > 0 {
			t.Error("Raft learns of ", answer.Error())
		}
	})
}

// Raft reads one refusal, of what the member or this node refused, and then ends the pipeline.
func TestPipelineEndsWithOneRefusal(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var stalled atomic.Bool
		stalled.Store(true)
		inner := &answeringPipeline{answers: make(chan raft.AppendFuture)}
		p := &pipeline{AppendPipeline: inner, answers: make(chan raft.AppendFuture),
			may: func() bool { return true }, moving: never, stalled: &stalled,
			stop: make(chan struct{}), failed: make(chan raft.AppendFuture, 1),
			later: time.NewTimer(time.Hour), sending: make(chan struct{}, 1)}
		go p.pass()
		defer p.Close()
		inner.answers <- goodAnswer{n: 7}
		for range 3 {
			if _, err := p.AppendEntries(&raft.AppendEntriesRequest{},
				&raft.AppendEntriesResponse{}); err != nil {
				t.Error(err)
			}
		}
		if got, good := (<-p.Consumer()).(goodAnswer); !good || got.n != 7 {
			t.Errorf("first: %+v", got)
		}
		if got := <-p.Consumer(); !errors.Is(got.Error(), errStalled) {
			t.Errorf("then: %v", got.Error())
		}
		for i := range 10 {
			select {
			case inner.answers <- goodAnswer{n: 8 + i}: // drained
			case got := <-p.Consumer():
				t.Fatalf("and %+v", got)
			}
		}
	})
}

// Members are told what is committed long before Raft sends something by itself, unless the
// connection is a new one.
func TestMembersAreToldWhatIsCommitted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const byItself = time.Second
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.tuneRaft = func(rc *raft.Config) { rc.CommitTimeout = byItself }
		})
		lead := c.leader()
		const rounds = 10
		late := 0
		for range rounds {
			c.write(lead, "a")
			index, began := lead.machine.appliedIndex.Load(), time.Now()
			for _, f := range c.followers() {
				eventually(t, "the follower to apply the entry", func() bool {
					return f.machine.appliedIndex.Load() >= index
				})
			}
			if time.Since(began) >= byItself {
				late++
			}
		}
		if late > rounds/2 {
			t.Errorf("%d of %d entries were applied late", late, rounds)
		}
	})
}

func never() bool { return false }

// A good answer is a refusal while the member's address is being replaced, here from the second on.
func TestPipelineEndsWithTheAddress(t *testing.T) {
	simulated(t, func(t *testing.T) {
		inner := &answeringPipeline{answers: make(chan raft.AppendFuture)}
		asked := 0
		p := &pipeline{AppendPipeline: inner, answers: make(chan raft.AppendFuture),
			moving: func() bool { asked++; return asked > 1 }, stop: make(chan struct{}),
			later: time.NewTimer(time.Hour)}
		go p.pass()
		defer p.Close()
		for i := range 3 {
			inner.answers <- goodAnswer{n: i}
		}
		if got, good := (<-p.Consumer()).(goodAnswer); !good || got.n != 0 {
			t.Errorf("first: %+v", got)
		}
		got := <-p.Consumer()
		if !errors.Is(got.Error(), errMoving) || got.Response().Success || got.Request() == nil {
			t.Errorf("then: %v, %+v", got.Error(), got.Response())
		}
	})
}

// answeringPipeline passes answers to whoever takes them.
type answeringPipeline struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
}

func (p *answeringPipeline) Consumer() <-chan raft.AppendFuture { return p.answers }
func (p *answeringPipeline) Close() error                       { return nil }

// goodAnswer is a member's answer that it has stored what it was sent.
type goodAnswer struct {
	raft.AppendFuture
	n int
}

func (goodAnswer) Error() error                        { return nil }
func (goodAnswer) Start() time.Time                    { return time.Now() }
func (goodAnswer) Request() *raft.AppendEntriesRequest { return &raft.AppendEntriesRequest{} }
func (goodAnswer) Response() *raft.AppendEntriesResponse {
	return &raft.AppendEntriesResponse{Success: true}
}

// TestUnreadAnswersHoldUpNothing: Raft, which has stopped leading, reads no answers, but closes the
// pipeline only once the message that it is sending is in flight. The transport takes it when its
// answers to the messages before it are taken, of which two were on their way and one was tell's.
func TestUnreadAnswersHoldUpNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		inner := &answeringPipeline{answers: make(chan raft.AppendFuture)}
		p := &pipeline{AppendPipeline: inner, answers: make(chan raft.AppendFuture), moving: never,
			stop: make(chan struct{}), later: time.NewTimer(time.Hour)}
		go p.pass()
		defer p.Close()
		for i := range 3 {
			select {
			case inner.answers <- goodAnswer{n: i}:
			case <-time.After(10 * time.Second):
				t.Fatalf("answer %d is not taken", i)
			}
		}
		for i := range 3 {
			if got := (<-p.Consumer()).(goodAnswer).n; got != i {
				t.Fatalf("answer %d comes in the place of answer %d", got, i)
			}
		}
	})
}

// batchLog notes the largest batch that a node stores: entries, and their bytes.
type batchLog struct {
	raft.LogStore
	entries, bytes *atomic.Int64
}

func (b batchLog) StoreLogs(logs []*raft.Log) error {
	size := int64(0)
	for _, l := range logs {
		size += int64(len(l.Data))
	}
	b.entries.Store(max(b.entries.Load(), int64(len(logs))))
	b.bytes.Store(max(b.bytes.Load(), size))
	return b.LogStore.StoreLogs(logs)
}

// TestCatchesUpByLongMessages: a member that was away receives many small entries at a time, and
// few large ones.
func TestCatchesUpByLongMessages(t *testing.T) {
	simulated(t, func(t *testing.T) {
		stored := map[string]batchLog{}
		c := newCluster(t, 3, func(cfg *Config) {
			b := batchLog{entries: &atomic.Int64{}, bytes: &atomic.Int64{}}
			stored[cfg.ID] = b
			cfg.wrapLog = func(s raft.LogStore) raft.LogStore { b.LogStore = s; return b }
		})
		lead, follower := c.leader(), c.followers()[0]
		id := follower.cfg.ID
		for _, test := range []struct{ entries, bytes int }{{300, 1}, {30, extendBytes / 4}} {
			most := min(extendEntries, max(extendBytes/test.bytes+1, maxAppendEntries))
			stored[id].entries.Store(0)
			stored[id].bytes.Store(0)
			c.net.isolate(id)
			for i := range test.entries {
				c.write(lead, fmt.Sprintf("%d:%0*d", i, test.bytes, 0))
			}
			c.net.heal(id)
			eventually(t, "the follower to catch up", func() bool {
				return follower.raft.LastIndex() >= lead.raft.LastIndex()
			})
			entries, bytes := int(stored[id].entries.Load()), int(stored[id].bytes.Load())
			if entries < most/2 || entries > most ||
				bytes > extendBytes+maxAppendEntries*(test.bytes+100) {
				t.Errorf("%d entries of %d bytes: up to %d of them, of %d bytes, came at a time",
					test.entries, test.bytes, entries, bytes)
			}
		}
		c.converged()
	})
}

// TestPausedMemberCatchesUp: a member that was paused on an open connection gets all that it lacks,
// though nothing else is logged and Raft sends little by itself.
func TestPausedMemberCatchesUp(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.tuneRaft = func(rc *raft.Config) { rc.CommitTimeout = 5 * time.Second }
		})
		lead, follower := c.leader(), c.followers()[0]
		for i := range 3 {
			c.write(lead, fmt.Sprint("open:", i)) // the pipelines
			c.converged()
		}
		c.net.pause(follower.cfg.ID)
		for i := range 8 * extendEntries {
			c.write(lead, fmt.Sprint("w:", i))
		}
		settled(t, lead)
		c.net.resume(follower.cfg.ID)
		eventually(t, "the follower to catch up", func() bool {
			return follower.raft.LastIndex() >= lead.raft.LastIndex()
		})
		c.converged()
	})
}

// shortOfRoom refuses entries while its disk is said to be full, and notes how many came at a time
// once some were refused.
type shortOfRoom struct {
	raft.LogStore
	full             *atomic.Bool
	refused, longest *atomic.Int64
}

func (f shortOfRoom) StoreLogs(logs []*raft.Log) error {
	if !f.full.Load() {
		return f.LogStore.StoreLogs(logs)
	}
	if f.refused.Add(1) > 4 { // as many were on their way
		f.longest.Store(max(f.longest.Load(), int64(len(logs))))
	}
	return errors.New("no space left on device")
}

// TestRefusedMessagesAreShort: a member that refuses what is new soon gets a message of what it
// has, however much is new. Raft waits longer for each refusal before it.
func TestRefusedMessagesAreShort(t *testing.T) {
	simulated(t, func(t *testing.T) {
		logs := map[string]shortOfRoom{}
		c := newCluster(t, 3, func(cfg *Config) {
			f := shortOfRoom{full: &atomic.Bool{}, refused: &atomic.Int64{},
				longest: &atomic.Int64{}}
			logs[cfg.ID] = f
			cfg.wrapLog = func(s raft.LogStore) raft.LogStore { f.LogStore = s; return f }
		})
		lead, follower := c.leader(), c.followers()[0]
		f := logs[follower.cfg.ID]
		length := &lead.link(follower.cfg.ID).length
		c.net.isolate(follower.cfg.ID)
		for i := range 300 {
			c.write(lead, fmt.Sprint("before:", i))
		}
		c.net.heal(follower.cfg.ID)
		eventually(t, "long messages", func() bool { return length.most() > maxAppendEntries })
		f.full.Store(true)
		for i := 0; f.refused.Load() < 12; i++ {
			c.write(lead, fmt.Sprint("then:", i))
			time.Sleep(10 * time.Millisecond) // Raft tries again after up to 10 s
		}
		f.full.Store(false)
		if n := f.longest.Load(); n > 2*maxAppendEntries { // twice behind one that was taken
			t.Errorf("%d entries came at a time, of which some are refused", n)
		}
		c.converged()
	})
}

// TestMessageLength: what is answered soon doubles it, what is late or refused ends that.
func TestMessageLength(t *testing.T) {
	var l messageLength
	for i, step := range []struct {
		entries int
		after   time.Duration
		stored  bool
		want    int
	}{
		{1, 0, true, 8}, {8, extendWithin, true, 16}, {8, 0, true, 16}, {16, 0, true, 32},
		{32, 0, true, 64}, {64, 0, true, 64}, {1, extendWithin + 1, true, 8}, {8, 0, true, 16},
		{1, 0, false, 8},
	} {
		if l.answered(step.entries, step.after, step.stored); l.most() != step.want {
			t.Errorf("step %d: %+v, but %d", i, step, l.most())
		}
	}
	if (*messageLength)(nil).most() != maxAppendEntries {
		t.Error("a message to who is no member is long")
	}
}

// TestPipelineExtendsLongMessages: what follows in the log of the leadership is sent with, and
// behind, a message that is as long as Raft makes them.
func TestPipelineExtendsLongMessages(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		lead := c.leader()
		for i := range extendEntries + 50 {
			c.write(lead, fmt.Sprint("w:", i))
		}
		term, last := lead.raft.CurrentTerm(), lead.raft.LastIndex()
		to := &link{}
		to.length.entries.Store(extendEntries)
		inner := &sentPipeline{}
		p := &pipeline{AppendPipeline: inner, t: &transport{n: lead}, to: to,
			may: func() bool { return true }, stalled: &atomic.Bool{},
			later: time.AfterFunc(time.Hour, func() {}), sending: make(chan struct{}, 1),
			failed: make(chan raft.AppendFuture, 1)}
		for _, test := range []struct {
			term, first uint64
			count, want int
		}{
			{term, last - extendEntries - 20, maxAppendEntries, extendEntries},
			{term, last - 20, maxAppendEntries, 21},
			{term, last - maxAppendEntries + 1, maxAppendEntries, maxAppendEntries},
			{term, last - 20, maxAppendEntries - 1, maxAppendEntries - 1}, // all that Raft had
			{term - 1, last - 20, maxAppendEntries, 0},                    // an earlier leadership
		} {
			req := &raft.AppendEntriesRequest{Term: test.term, PrevLogEntry: test.first - 1}
			for i := range test.count {
				l := &raft.Log{}
				if err := lead.logs.GetLog(test.first+uint64(i), l); err != nil {
					t.Fatal(err)
				}
				req.Entries = append(req.Entries, l)
			}
			inner.newest = nil
			if _, err := p.AppendEntries(req, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
			if test.want == 0 {
				if len(inner.newest) > 0 {
					t.Errorf("%+v: a message is sent", test)
				}
				continue
			}
			if n := len(inner.newest[0].Entries); n != test.want {
				t.Errorf("%+v: %d entries", test, n)
			}
			next, end := test.first, test.first+uint64(test.want)
			for _, message := range inner.newest {
				if message.PrevLogEntry != next-1 {
					t.Fatalf("%+v: a message behind %d", test, message.PrevLogEntry)
				}
				for _, l := range message.Entries {
					if l.Index != next {
						t.Fatalf("%+v: entry %d has index %d", test, next, l.Index)
					}
					next++
				}
			}
			if test.count == maxAppendEntries && test.term == term {
				end = last + 1
			}
			sent := req.Entries[len(req.Entries)-1].Index
			if next != end || sent != next-1 || len(inner.newest) > 2 {
				t.Errorf("%+v: %d messages up to %d, to Raft up to %d", test, len(inner.newest),
					next-1, sent)
			}
		}
	})
}

// blockedPipeline sends nothing until it may.
type blockedPipeline struct {
	raft.AppendPipeline
	may chan struct{}
}

func (p blockedPipeline) AppendEntries(*raft.AppendEntriesRequest,
	*raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	<-p.may
	return nil, nil
}

// TestNobodyIsToldInVain: while a message cannot be sent, nothing wakes each millisecond to tell
// what is committed. It is told once the message is sent.
func TestNobodyIsToldInVain(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		lead := c.leader()
		c.write(lead, "a")
		inner := blockedPipeline{may: make(chan struct{})}
		p := &pipeline{AppendPipeline: inner, t: &transport{n: lead}, stalled: &atomic.Bool{},
			may: func() bool { return true }, sending: make(chan struct{}, 1),
			failed: make(chan raft.AppendFuture, 1)}
		var wakes atomic.Int32
		p.later = time.AfterFunc(time.Hour, func() { wakes.Add(1); p.tell() })
		defer p.later.Stop()
		send := func() {
			_, _ = p.AppendEntries(&raft.AppendEntriesRequest{Term: lead.raft.CurrentTerm(),
				PrevLogEntry: lead.raft.LastIndex()}, &raft.AppendEntriesResponse{})
		}
		go send()
		synctest.Wait()
		p.later.Reset(tellAfter) // for the message before
		time.Sleep(time.Second)
		if n := wakes.Load(); n > 1 {
			t.Errorf("woken %d times", n)
		}
		close(inner.may)
		eventually(t, "it is told", func() bool {
			p.sending <- struct{}{}
			defer func() { <-p.sending }()
			return p.told == lead.raft.LastIndex()
		})
	})
}

// TestReplicationGoesOnAfterAStall: what waits at the gate while the leader is stalled goes on when
// that ends, though neither role nor term has changed.
func TestReplicationGoesOnAfterAStall(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, id := c.leader(), raft.ServerID(c.followers()[0].cfg.ID)
		passed := make(chan error, 1)
		lead.stalledLeader.Store(true)
		go func() { passed <- lead.transport.gate(id, lead.raft.CurrentTerm()) }()
		stacks := make([]byte, 1<<20)
		eventually(t, "a call at the gate", func() bool {
			lead.stalledLeader.Store(true) // the next look at the disk ends it
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ".gate(")
		})
		lead.stalledLeader.Store(true)
		lead.setStalled("")
		select {
		case <-passed:
		case <-time.After(20 * time.Second):
			t.Error("replication stays at the gate")
		}
	})
}
