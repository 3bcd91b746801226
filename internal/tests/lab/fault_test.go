//go:build linux

// What happens to clusters.

package lab

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/netns"
)

// need is what a fault wants of the site.
type need int

const (
	apart      need = 1 << iota // nodes with networks and disks of their own
	smallLog                    // a log of small files
	oldRelease                  // nodes that begin as release 0.1
	secured                     // TLS
	testBuild                   // nodes whose wall clocks can be set, and disks slowed down
	minority                    // what it takes of the disks is all that may be taken
)

// missing returns why the machine lacks something; "" if it does not.
func (n need) missing() string {
	if n&apart != 0 {
		if why := missingNetwork(); why != "" {
			return why
		}
	}
	if n&oldRelease != 0 {
		if why := binaries.MissingFirst(); why != "" {
			return why
		}
	}
	return ""
}

var missingNetwork = sync.OnceValue(netns.Missing)

// fault is one kind of failure, in several variants.
type fault struct {
	name     string
	variants []variant
}

// variant is a way in which a fault happens.
type variant struct {
	name  string
	needs need
	// survives: a majority is left which must serve meanwhile
	survives bool
	// slow: and it does so slowly
	slow bool
	// least is how long it lasts at least
	least time.Duration
	// begin lets it happen. The function that it returns ends it; nil: it ends by itself.
	begin func(x *scene) (end func())
}

// scene is where a fault happens.
type scene struct {
	*run
	rnd *rand.Rand // the fault's own
}

// lead returns the leading node.
func (x *scene) lead() *node { return x.leader(x.rnd) }

// other returns a node that does not lead.
func (x *scene) other() *node { return x.follower(x.lead(), x.rnd) }

// others calls f for each host other than the node's.
func (x *scene) others(n *node, f func(host int)) {
	for _, other := range x.all {
		if other != n {
			f(other.number)
		}
	}
}

// faults are all of them.
var faults = []fault{
	{"nothing", []variant{{name: "nothing happens", survives: true,
		begin: func(*scene) func() { return nil }}}},
	{"partition", partitions},
	{"links", links},
	{"kill", kills},
	{"pause", pauses},
	{"full disk", fullDisks},
	{"bad disk", badDisks},
	{"slow disk", []variant{{name: "the leader's disk is slow", needs: testBuild, survives: true,
		slow: true, begin: slowDisk}}},
	{"clock step", []variant{{name: "wall clocks are set", needs: testBuild, survives: true,
		begin: stepClocks}}},
	{"snapshot", []variant{{name: "a follower needs a snapshot", needs: smallLog,
		survives: true, begin: needSnapshot}}},
	{"rotation", []variant{{name: "the log's files are small", needs: smallLog, survives: true,
		begin: rotate}}},
	{"restart", []variant{{name: "nodes are restarted one after the other", begin: rollOver}}},
	{"upgrade", []variant{{name: "release 0.1 is upgraded node by node", needs: oldRelease,
		begin: upgrade}}},
	{"members", []variant{
		{name: "a member is added and removed", begin: addMember},
		{name: "a member is replaced", needs: minority, begin: replaceMember},
	}},
	{"transfer", []variant{{name: "leadership is handed over again and again", survives: true,
		slow: true, begin: transferAgain}}},
	{"certificates", []variant{{name: "certificates are renewed", needs: secured, survives: true,
		begin: renewCertificates}}},
}

// matches reports whether a fault or one of its variants has these words in its name.
func (f *fault) matches(words string) bool {
	return strings.Contains(f.name, words) || len(f.choose(words)) > 0
}

// choose returns the variants that these words select: all, if they are in the fault's name.
func (f *fault) choose(words string) []variant {
	if strings.Contains(f.name, words) {
		return f.variants
	}
	var some []variant
	for _, v := range f.variants {
		if strings.Contains(v.name, words) {
			some = append(some, v)
		}
	}
	return some
}

var partitions = []variant{
	{name: "the leader is cut off from the others", needs: apart, survives: true,
		begin: cutLeader},
	{name: "the leader is cut off from the others for long", needs: apart, survives: true,
		least: 20 * time.Second, begin: cutLeader}, // TCP retransmits after long pauses then
	{name: "the others do not hear the leader, but it hears them", needs: apart, survives: true,
		begin: func(x *scene) func() {
			lead, f := x.lead(), x.net.Faults()
			x.others(lead, func(i int) { f.Set(lead.number, i, netns.Rule{Lose: 1}) })
			return f.Heal
		}},
	{name: "the leader does not hear the others, but they hear it", needs: apart, survives: true,
		begin: func(x *scene) func() {
			lead, f := x.lead(), x.net.Faults()
			x.others(lead, func(i int) { f.Set(i, lead.number, netns.Rule{Lose: 1}) })
			return f.Heal
		}},
	{name: "the leader and one of the others are cut off from each other", needs: apart,
		survives: true, begin: func(x *scene) func() {
			lead, f := x.lead(), x.net.Faults()
			f.Cut(lead.number, x.follower(lead, x.rnd).number)
			return f.Heal
		}},
	{name: "a follower is cut off", needs: apart, survives: true, begin: func(x *scene) func() {
		n, f := x.other(), x.net.Faults()
		x.others(n, func(i int) { f.Cut(n.number, i) })
		return f.Heal
	}},
	{name: "all are cut off from each other", needs: apart, begin: func(x *scene) func() {
		f := x.net.Faults()
		for _, n := range x.all {
			x.others(n, func(i int) { f.Cut(n.number, i) })
		}
		return f.Heal
	}},
}

func cutLeader(x *scene) func() {
	lead, f := x.lead(), x.net.Faults()
	x.did("cuts off %s", lead.id())
	x.others(lead, func(i int) { f.Cut(lead.number, i) })
	return f.Heal
}

const lateness = 50 * time.Millisecond

var links = []variant{
	{name: "packets between nodes are lost and late", needs: apart, survives: true, slow: true,
		begin: func(x *scene) func() {
			return x.everywhere(netns.Rule{Lose: 0.05 + 0.15*x.rnd.Float64(), Delay: lateness})
		}},
	{name: "packets between nodes are late", needs: apart, survives: true, slow: true,
		begin: func(x *scene) func() { return x.everywhere(netns.Rule{Delay: lateness}) }},
	{name: "links between nodes flap", needs: apart, survives: true, slow: true, begin: flap},
}

func (x *scene) everywhere(r netns.Rule) func() {
	f := x.net.Faults()
	for _, n := range x.all {
		x.others(n, func(i int) { f.Set(n.number, i, r) })
	}
	return f.Heal
}

// again does something again and again, with pauses between the two bounds, until it is ended.
func (x *scene) again(least, most time.Duration, f func()) (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			f()
			select {
			case <-time.After(least + time.Duration(x.rnd.Int64N(int64(most-least)))):
			case <-over:
				return
			}
		}
	}()
	return func() { close(over); <-ended }
}

// flap cuts one link after the other for a moment.
func flap(x *scene) func() {
	f := x.net.Faults()
	end := x.again(100*time.Millisecond, 600*time.Millisecond, func() {
		f.Heal()
		a := x.rnd.IntN(founding)
		f.Cut(a, (a+1+x.rnd.IntN(founding-1))%founding)
	})
	return func() { end(); f.Heal() }
}
