// The plan: at which operation the power fails, or an error is returned.

package crashdisk

import (
	"fmt"
	"maps"
	"syscall"
	"time"
)

// Op is an operation that changes the disk or makes a change durable.
type Op struct {
	N    int    // its number since the plan was made, from 1
	Kind string // write, sync, datasync, syncdir, create, mkdir, link, rename, unlink, rmdir …
	Path string // without a leading slash
}

// String returns the operation as a report shows it.
func (o Op) String() string { return fmt.Sprintf("%d %s %s", o.N, o.Kind, o.Path) }

// plan counts operations and says what happens at one of them.
type plan struct {
	n       int
	counts  map[string]int
	trace   []Op
	crashAt int
	failAt  int
	errno   syscall.Errno
	lasting bool // all operations from failAt on fail
	hit     Op   // where the plan took effect

	down     bool          // the power failed
	reached  chan struct{} // closed once the plan took effect
	released chan struct{} // closed when those that wait without power shall fail
}

func (p *plan) init() {
	*p = plan{counts: map[string]int{}, reached: make(chan struct{}),
		released: make(chan struct{})}
}

// CrashAt plans that the power fails at the n-th operation from now: it is not taken, or in part,
// and whoever changes the disk from then on waits until Release. What is read is still returned. A
// process must be killed then, and only then the disk released.
func (d *Disk) CrashAt(n int) { d.set(plan{crashAt: n}) }

// FailAt plans that the n-th operation from now returns an error, and if lasting all later ones
// until there is another plan. Only operations that can return that error count, and for EMFILE and
// ENFILE those that open a file.
func (d *Disk) FailAt(n int, errno syscall.Errno, lasting bool) {
	d.set(plan{failAt: n, errno: errno, lasting: lasting})
}

// Go drops the plan and counts from 0.
func (d *Disk) Go() { d.set(plan{}) }

func (d *Disk) set(p plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.plan.down {
		return // a disk without power stays so
	}
	d.plan.init()
	d.plan.crashAt, d.plan.failAt, d.plan.errno, d.plan.lasting = p.crashAt, p.failAt, p.errno,
		p.lasting
}

// Reached returns a channel that is closed once the plan takes effect.
func (d *Disk) Reached() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.plan.reached
}

// Hit returns the operation at which the plan took effect; its N is 0 if it did not.
func (d *Disk) Hit() Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.plan.hit
}

// Taken returns the number of operations since the plan was made, all and by their kind.
func (d *Disk) Taken() (int, map[string]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.plan.n, maps.Clone(d.plan.counts)
}

// Trace returns the newest operations since the plan was made.
func (d *Disk) Trace() []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Op(nil), d.plan.trace...)
}

// traced is how many operations Trace returns at most, about.
const traced = 200

// Release lets those fail who wait since the power failed.
func (d *Disk) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.plan.released:
	default:
		close(d.plan.released)
	}
}

// do counts an operation and takes it, unless the plan is against it. take makes the changes; it
// is told if the operation was only attempted. The caller holds the lock.
func (d *Disk) do(kind, at string, take func(attempted bool)) syscall.Errno {
	p := &d.plan
	if !p.down {
		if !p.concerns(kind) {
			take(false)
			return 0
		}
		p.n++
		p.counts[kind]++
		op := Op{p.n, kind, at}
		if p.trace = append(p.trace, op); len(p.trace) > 2*traced {
			p.trace = append([]Op(nil), p.trace[traced:]...)
		}
		if p.n == p.failAt || p.lasting && p.failAt > 0 && p.n > p.failAt {
			p.reach(op)
			return p.errno
		}
		if p.n != p.crashAt {
			take(false)
			return 0
		}
		p.down = true
		take(true)
		p.reach(op)
	}
	d.mu.Unlock()
	<-p.released
	d.mu.Lock()
	return syscall.EIO
}

// open counts an operation that opens a file or directory, if the plan is about these.
func (d *Disk) open(n *node) syscall.Errno {
	if !d.plan.concerns("open") {
		return 0
	}
	return d.do("open", n.name(), func(bool) {})
}

// concerns reports whether the plan counts a kind of operation.
func (p *plan) concerns(kind string) bool {
	opens := p.errno == syscall.EMFILE || p.errno == syscall.ENFILE
	switch kind {
	case "open":
		return opens
	case "create":
		return true
	case "unlink", "rmdir", "chmod", "syncdir":
		return !opens && p.errno != syscall.ENOSPC
	}
	return !opens
}

func (p *plan) reach(op Op) {
	if p.hit.N == 0 {
		p.hit = op
		close(p.reached)
	}
}

// touch notes the time of a change.
func (n *node) touch() { n.changed = time.Now().UnixNano() }
