//go:build linux

// Faults that operators make: snapshots, restarts, upgrades, changes of members and leaders,
// certificates.

package lab

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// changeLimit is how long a change of members is tried while other faults are there.
const changeLimit = 20 * time.Second

// behindCalls is how many calls have replies while a follower is away: more than the 32 entries
// that a build with small log files keeps for it behind a snapshot.
const behindCalls = 1000

// needSnapshot keeps one follower after the other away until the log of the others begins behind
// it, so that it receives a snapshot while the other fault lasts.
func needSnapshot(x *scene) func() {
	end := x.again(300*time.Millisecond, time.Second, func() {
		n := x.other()
		begin := x.down(n)
		calls := x.acknowledged() + behindCalls
		await(time.Second, func() bool { return x.acknowledged() >= calls })
		for _, other := range x.members() {
			if other != n {
				_, _ = x.admin(other, 5*time.Second, "RAFT", "SNAPSHOT")
			}
		}
		begin()
	})
	return func() {
		end()
		x.afterwards(func() {
			count := 0
			for _, n := range x.all {
				log, _ := os.ReadFile(n.log())
				count += len(received.FindAll(log, -1))
			}
			x.did("%d snapshots came from a leader", count)
		})
	}
}

// received is what a node logs when it has loaded a snapshot, other than at its start.
var received = regexp.MustCompile(`msg="snapshot loaded" applied-before=[1-9]`)

// rotate writes values of the size of a few files of the log again and again.
func rotate(x *scene) func() {
	value := strings.Repeat("x", 5<<10)
	return x.again(time.Millisecond, 20*time.Millisecond, func() {
		n := x.all[x.rnd.IntN(founding)]
		_, _ = x.admin(n, time.Second, "SET", "lab:rotates", value)
	})
}

// rollOver restarts all nodes as an operator does.
func rollOver(x *scene) func() {
	return x.inTurn(func(*node) {})
}

// upgrade replaces the binaries of all nodes.
func upgrade(x *scene) func() {
	return x.inTurn(func(n *node) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.first = false
	})
}

// inTurn stops the nodes one after another, changes them and starts them. The function that it
// returns waits until all are through.
func (x *scene) inTurn(change func(n *node)) func() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, i := range x.rnd.Perm(founding) {
			n := x.all[i]
			clean := n.stop()
			x.did("restarts %s, stopped cleanly: %v", n.id(), clean)
			change(n)
			n.start()
			await(2*time.Second, func() bool {
				_, err := x.admin(n, time.Second, "PING")
				return err == nil
			})
		}
	}()
	return func() { <-ended }
}

// listed returns the role of a member as some node reports it, "" if it is none, and whether a node
// answered.
func (x *scene) listed(id string) (role string, answered bool) {
	for _, n := range x.members() {
		v, err := x.admin(n, time.Second, "RAFT", "MEMBERS")
		rows, ok := v.([]any)
		if err != nil || !ok {
			continue
		}
		for _, row := range rows {
			if m, _ := row.(map[any]any); m["id"] == id {
				return fmt.Sprint(m["role"]), true
			}
		}
		answered = true
	}
	return "", answered
}

// remove removes a member for good.
func (x *scene) remove(id string, limit time.Duration) bool {
	return await(limit, func() bool {
		for _, n := range x.members() {
			if n.id() != id {
				if _, err := x.admin(n, 3*time.Second, "RAFT", "REMOVE", id); err == nil ||
					strings.Contains(err.Error(), "was already removed") {
					return true
				}
			}
		}
		role, answered := x.listed(id)
		return answered && role == ""
	})
}

// joined waits until a node votes.
func (x *scene) joined(n *node) bool {
	return await(changeLimit, func() bool {
		n.start()
		role, _ := x.listed(n.id())
		return role == "voter" || role == "leader"
	})
}

// join makes a node a member under a new id, without data.
func (x *scene) join(n *node) {
	x.mu.Lock()
	id := fmt.Sprint("n", x.nextID)
	x.nextID++
	x.mu.Unlock()
	n.kill() // another fault may have started it
	n.mu.Lock()
	_ = os.RemoveAll(n.dataDir())
	n.named, n.joins, n.first = id, true, false
	n.mu.Unlock()
	x.did("lets %s join", id)
	n.start()
}

// addMember adds a fourth node and removes it.
func addMember(x *scene) func() {
	n := x.all[founding]
	x.join(n)
	return func() {
		x.did("%s votes: %v", n.id(), x.joined(n))
		if !x.remove(n.id(), changeLimit) {
			x.afterwards(func() { x.mustRemove(n) })
			return
		}
		n.kill()
	}
}

// mustRemove removes a member when there are no faults any more.
func (x *scene) mustRemove(n *node) {
	if !x.remove(n.id(), changeLimit) {
		x.problem("%s cannot be removed", n.id())
	}
	n.kill()
}

// replaceMember removes a follower and gives its place to a new node.
func replaceMember(x *scene) func() {
	n := x.other()
	n.kill()
	if !x.remove(n.id(), changeLimit/2) {
		return func() {
			x.did("could not remove %s", n.id())
			n.start()
			x.afterwards(func() { x.replaced(n) })
		}
	}
	x.join(n)
	return func() { x.afterwards(func() { x.replaced(n) }) }
}

// replaced makes sure that a node is a member: that its removal, whose outcome was not known, came
// to nothing, or that its successor has joined.
func (x *scene) replaced(n *node) {
	role, _ := x.listed(n.id())
	if role == "" && !x.joined(n) {
		n.kill()
		x.join(n)
	}
	if !x.joined(n) {
		x.problem("%s does not become a voter: %s", n.id(), n.lastLine())
	}
}

// transferAgain hands leadership over.
func transferAgain(x *scene) func() {
	return x.again(100*time.Millisecond, time.Second, func() {
		_, err := x.admin(x.all[x.rnd.IntN(founding)], 2*time.Second, "RAFT", "TRANSFER")
		_ = err // another change may be in progress
	})
}

// renewCertificates renews those of nodes and clients.
func renewCertificates(x *scene) func() {
	return x.again(time.Second, 3*time.Second, func() {
		if err := x.renew(); err != nil {
			x.problem("%v", err)
		}
	})
}
