//go:build linux

// Faults of processes, their disks and clocks.

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// down kills nodes. At the end they start again.
func (x *scene) down(nodes ...*node) func() {
	for _, n := range nodes {
		x.did("kills %s", n.id())
		n.kill()
	}
	return func() {
		for _, n := range nodes {
			n.start()
		}
	}
}

var kills = []variant{
	{name: "the leader is killed", survives: true,
		begin: func(x *scene) func() { return x.down(x.lead()) }},
	{name: "a follower is killed", survives: true,
		begin: func(x *scene) func() { return x.down(x.other()) }},
	{name: "all are killed at once", begin: func(x *scene) func() {
		all := x.members()
		for _, n := range all {
			n.signal(syscall.SIGSTOP) // none sees another die
		}
		return x.down(all...)
	}},
	{name: "nodes are killed and started again and again", begin: func(x *scene) func() {
		return x.again(300*time.Millisecond, time.Second, func() {
			in := x.members()
			n := in[x.rnd.IntN(len(in))]
			x.did("kills %s and starts it", n.id())
			n.kill()
			n.start()
		})
	}},
}

func (x *scene) pause(n *node) func() {
	x.did("stops %s", n.id())
	n.signal(syscall.SIGSTOP)
	return func() { n.signal(syscall.SIGCONT) }
}

var pauses = []variant{
	{name: "the leader is stopped and goes on", survives: true,
		begin: func(x *scene) func() { return x.pause(x.lead()) }},
	{name: "a follower is stopped and goes on", survives: true,
		begin: func(x *scene) func() { return x.pause(x.other()) }},
	{name: "the leader runs by fits and starts", survives: true, slow: true,
		begin: func(x *scene) func() {
			lead := x.lead()
			s := syscall.SIGCONT
			end := x.again(90*time.Millisecond, 110*time.Millisecond, func() {
				s = syscall.SIGSTOP + syscall.SIGCONT - s
				lead.signal(s)
			})
			return func() { end(); lead.signal(syscall.SIGCONT) }
		}},
	{name: "all are stopped in turn", begin: func(x *scene) func() {
		i := 0
		end := x.again(200*time.Millisecond, 900*time.Millisecond, func() {
			x.all[i%founding].signal(syscall.SIGCONT)
			i++
			x.all[i%founding].signal(syscall.SIGSTOP)
		})
		return func() {
			end()
			for _, n := range x.all {
				n.signal(syscall.SIGCONT)
			}
		}
	}},
}

var fullDisks = []variant{
	{name: "the leader's disk is full", needs: apart, survives: true, slow: true,
		begin: func(x *scene) func() { return x.fill(x.lead()) }},
	{name: "a follower's disk is full", needs: apart, survives: true, slow: true,
		begin: func(x *scene) func() { return x.fill(x.other()) }},
	{name: "the leader is cut off, and its disk is full when it comes back", needs: apart,
		survives: true, slow: true, begin: func(x *scene) func() {
			lead, f := x.lead(), x.net.Faults()
			x.others(lead, func(i int) { f.Cut(lead.number, i) }) // with entries that only it has
			end := x.fill(lead)
			return func() {
				f.Heal()
				// It must replace them, for which it has no room.
				await(3*time.Second, func() bool { return !lead.running() })
				end()
			}
		}},
}

const (
	bigKey   = "lab:big"
	bigBytes = 4 << 20
	bigCount = 24 // more than one file of the log
)

// fill fills a node's disk and writes until its log needs more. A node that exits because of that
// is started again when there is room.
func (x *scene) fill(n *node) func() {
	filler := filepath.Join(n.disk, "filler")
	f, err := os.Create(filler)
	if err != nil {
		x.problem("%v", err)
		return nil
	}
	for block := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(block)
	}
	_ = f.Close()
	big := strings.Repeat("x", bigBytes)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := range bigCount {
			select {
			case <-over:
				return
			default:
				// whether that could be written does not matter here
				_, _ = x.admin(x.all[(n.number+1+i%2)%founding], 3*time.Second, "SET", bigKey, big)
			}
		}
	}()
	return func() {
		close(over)
		<-ended
		if err := os.Remove(filler); err != nil {
			x.problem("%v", err)
		}
		if !n.running() {
			x.did("starts %s, which had ended: %s", n.id(), n.lastLine())
			n.start()
		}
	}
}

var badDisks = []variant{
	{name: "the leader's log is changed, and it is killed", needs: minority, survives: true,
		begin: func(x *scene) func() { return x.spoil(x.lead()) }},
	{name: "a follower's log is changed, and it is killed", needs: minority, survives: true,
		begin: func(x *scene) func() { return x.spoil(x.other()) }},
}

// spoil changes a bit of a node's log while it runs, and later has it start from there. A node that
// ends because of that gets its state again.
func (x *scene) spoil(n *node) func() {
	change, err := n.changeBit(x.rnd)
	if err != nil {
		x.problem("%s: %v", n.id(), err)
		return nil
	}
	x.did("changes a bit of %s: %s", n.id(), change)
	again := time.AfterFunc(time.Duration(x.rnd.Int64N(int64(3*time.Second))), func() {
		n.kill()
		n.start()
	})
	return func() {
		again.Stop()
		// what it has not read by now it finds when it starts
		n.kill()
		n.start()
		if await(3*time.Second, func() bool { return !n.running() }) {
			x.did("fetches the state of %s again, which had ended: %s", n.id(), n.lastLine())
			n.refetch()
			n.start()
		}
	}
}

// slowDisk delays what makes the leader's writes durable.
func slowDisk(x *scene) func() {
	n, delay := x.lead(), 20+x.rnd.IntN(130)
	x.did("delays each sync of %s by %d ms", n.id(), delay)
	x.set(n.syncs, delay)
	return func() { x.set(n.syncs, 0) }
}

// stepClocks sets the wall clocks of nodes again and again, by up to an hour, also back.
func stepClocks(x *scene) func() {
	return x.again(50*time.Millisecond, 400*time.Millisecond, func() {
		n := x.all[x.rnd.IntN(founding)]
		ms := x.rnd.Int64N(2*time.Hour.Milliseconds()) - time.Hour.Milliseconds()
		x.set(n.wall, ms)
	})
}

// set writes a number to a file that nodes read.
func (x *scene) set(file string, n any) {
	if err := os.WriteFile(file+".new", fmt.Append(nil, n), 0o600); err != nil {
		x.problem("%v", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		x.problem("%v", err)
	}
}
