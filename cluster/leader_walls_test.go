// Tests of the time of day that follows the wall clocks of the members.

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"testing"
	"time"
)

// offset returns how far the time of day is ahead of the cluster clock.
func (c *testCluster) offset() time.Duration {
	c.t.Helper()
	var ms int64
	if _, err := fmt.Sscan(c.read(c.leader(), "wall"), &ms); err != nil {
		c.t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// restartTwo restarts n1 and n2 of three nodes, with wall clocks that are ahead by as much.
func (c *testCluster) restartTwo(n1, n2 time.Duration) {
	c.t.Helper()
	c.write(c.leader(), "w")
	c.closeAll()
	c.clock("n1").shiftWall(n1)
	c.clock("n2").shiftWall(n2)
	c.reopen("n1")
	c.reopen("n2")
	c.leader()
}

// TestLateJumpKeepsLeases: of three nodes two have restarted, and a lease runs, when the wall clock
// of the third shows that one of them is an hour behind. TIME jumps, the lease ends when it would.
func TestLateJumpKeepsLeases(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.restartTwo(2*time.Hour, time.Hour)
		c.clock("n3").shiftWall(2 * time.Hour)
		const ttl = 5 * time.Second
		before, began := c.offset(), time.Now()
		c.write(c.leader(), fmt.Sprintf("ttl:%d", ttl.Milliseconds()))
		c.reopen("n3")
		eventually(t, "the time of day jumps", func() bool {
			return c.offset()-before > 50*time.Minute
		})
		toy := c.toys[c.leader().cfg.ID]
		held := func() bool { toy.mu.Lock(); defer toy.mu.Unlock(); return len(toy.Expired) == 0 }
		if !held() || time.Since(began) >= ttl {
			t.Fatalf("the time of day jumped %v after the lease began", time.Since(began))
		}
		eventually(t, "the lease ends", func() bool { return !held() })
		if took := time.Since(began); took < ttl || took > ttl+2*time.Second {
			t.Errorf("a lease of %v ended after %v", ttl, took)
		}
	})
}

// TestWallClocksPutRight: two nodes have restarted, one with a wrong wall clock, which is put right
// while they are connected. What counts is what it shows then.
func TestWallClocksPutRight(t *testing.T) {
	for _, wrong := range []string{"n1", "n2"} { // one of them leads
		for _, apart := range []time.Duration{-time.Hour, time.Hour} {
			runSimulated(t, fmt.Sprint(wrong, apart), func(t *testing.T) {
				c := newCluster(t, 3, nil)
				from := c.offset()
				c.clock(wrong).shiftWall(apart)
				c.restartTwo(2*time.Hour, 2*time.Hour)
				c.clock(wrong).shiftWall(-apart)
				right := func() bool {
					jumped := c.offset() - from
					return jumped > 2*time.Hour-time.Minute && jumped < 2*time.Hour+time.Minute
				}
				eventually(t, "the time of day is right", right)
				eventually(t, "the leader knows it", func() bool {
					w := c.leader().wallsAhead()
					return w.Known && w.AheadMs == 0
				})
				// the third is wrong as well, and alone with that
				c.clock("n3").shiftWall(2*time.Hour + apart.Abs())
				c.reopen("n3")
				c.ready("n3")
				eventually(t, "all clocks are known", func() bool {
					return c.leader().wallsAhead().Settled
				})
				time.Sleep(2 * askEvery)
				if !right() {
					t.Errorf("the time of day went by %v, wanted 2 h", c.offset()-from)
				}
			})
		}
	}
}

// TestOldWallClocksDoNotCount: the clock of a member that has not told it for a while is unknown,
// and may still become known, unless the member is of a version that tells it once.
func TestOldWallClocksDoNotCount(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		l := lead.link(c.followers()[0].cfg.ID)
		is := func(what string, wantKnown, wantTells bool) {
			t.Helper()
			eventually(t, what, func() bool {
				_, known, tells := l.wall()
				return known == wantKnown && tells == wantTells
			})
		}
		time.Sleep(2 * wallKept)
		is("the member tells its clock", true, true)
		c.net.pause(l.id)
		is("it hangs", false, true)
		l.mu.Lock()
		l.peer.abilities &^= abilityWalls
		l.mu.Unlock()
		is("it is of an older version", false, false)
		c.net.resume(l.id)
	})
}

// TestOlderMembersAreToldNoWallClock: releases before 0.2 take a longer answer for a malformed one.
func TestOlderMembersAreToldNoWallClock(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		n, member := c.leader(), c.followers()[0]
		for _, abilities := range []uint64{0, ownAbilities &^ abilityWalls, ownAbilities} {
			h := member.hello(n.cfg.ID, "")
			h.abilities = abilities
			conn := c.net.connect(t, "stranger", n.mux.Addr().String(),
				append(appendHello([]byte{streamForward}, h),
					endFrame(beginFrame(0), frameConfirm, 0, 7)...)...)
			r := bufio.NewReader(conn)
			if h, err := readHello(r); err != nil || h.refusal != "" {
				t.Fatal(h, err)
			}
			for {
				f, err := readFrame(r)
				if err != nil {
					t.Fatal(err)
				}
				if f.kind != frameTerm {
					continue
				}
				report, err := decodeTermReport(f.payload)
				if tells := abilities&abilityWalls != 0; err != nil || tells !=
					(report.wallMs != 0) || !tells && len(f.payload) != 24 {
					t.Errorf("abilities %b: %d bytes, %+v %v", abilities, len(f.payload), report,
						err)
				}
				break
			}
			conn.Close()
		}
	})
}

// TestTimeOfDayFollowsAMajority: the wall clock of the leader is set, and the time of day stays
// where those of the others are. When these are set as well, it follows, slowly.
func TestTimeOfDayFollowsAMajority(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		runSimulated(t, by.String(), func(t *testing.T) {
			c := newCluster(t, 3, nil)
			c.write(c.leader(), "w")
			lead, was := c.leader(), c.offset()
			const long = 10 * time.Second
			c.clock(lead.cfg.ID).shiftWall(by)
			time.Sleep(long)
			if went := c.offset() - was; went.Abs() > time.Millisecond { // before it was noticed
				t.Errorf("the time of day went by %v after one wrong clock", went)
			}
			for _, n := range c.followers() {
				c.clock(n.cfg.ID).shiftWall(by)
			}
			time.Sleep(long)
			went := c.offset() - was
			want := long / 2000 // 500 parts in a million
			if by < 0 {
				want = -long / 200
			}
			if (went-want).Abs() > 5*time.Millisecond || went == 0 {
				t.Errorf("the time of day went by %v after all, want %v", went, want)
			}
		})
	}
}

// TestTimeOfDayAfterStop: after the whole cluster was down, the time of day moves forward to the
// wall clock. After one node was down, it does not follow that node's wall clock if that leads
// next.
func TestTimeOfDayAfterStop(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		offset := func() (ms int64) {
			t.Helper()
			if _, err := fmt.Sscan(c.read(c.leader(), "wall"), &ms); err != nil {
				t.Fatal(err)
			}
			return ms
		}
		was := offset()
		next := c.followers()[0].cfg.ID
		c.close(next)
		c.clock(next).shiftWall(time.Minute)
		c.reopen(next)
		c.ready(next)
		eventually(t, "the node that was down has an entry", func() bool {
			return c.nodes[next].arrivals.Running()
		})
		eventually(t, "it leads", func() bool {
			if n := c.leader(); n.cfg.ID != next {
				err := n.TransferLeadership(next)
				return err == nil || errors.Is(err, ErrUnknown)
			}
			return true
		})
		if got := offset(); got != was {
			t.Errorf("the offset was %d ms and is %d ms: a wall clock that is wrong was followed",
				was,
				got)
		}
		c.closeAll()
		for _, m := range c.members {
			c.clock(m.ID).shiftWall(time.Hour)
			c.reopen(m.ID)
		}
		if got := offset(); got < was+time.Hour.Milliseconds() ||
			got > was+time.Hour.Milliseconds()+10*time.Minute.Milliseconds() {
			t.Errorf("after an hour in which no node ran the offset grew by %d ms", got-was)
		}
	})
}

// TestOneWrongWallClock restarts all nodes, one of which has a wall clock that is a year ahead,
// until that one leads first. The time of day is what the others say.
func TestOneWrongWallClock(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		offset := func() (ms int64) {
			t.Helper()
			if _, err := fmt.Sscan(c.read(c.leader(), "wall"), &ms); err != nil {
				t.Fatal(err)
			}
			return ms
		}
		const year, apart = 365 * 24 * time.Hour, int64(10 * time.Minute / time.Millisecond)
		was := offset()
		const wrong = "n2"
		c.clock(wrong).shiftWall(year)
		for led := false; !led; {
			c.closeAll()
			for _, m := range c.members {
				c.reopen(m.ID)
			}
			led = c.leader().cfg.ID == wrong
			if got := offset(); got < was || got > was+apart {
				t.Fatalf("%s leads, and the offset grew by %d ms", c.leader().cfg.ID, got-was)
			}
			c.write(c.leader(), "w")
		}
		c.closeAll()
		for _, m := range c.members {
			if m.ID != wrong {
				c.clock(m.ID).shiftWall(year) // no longer wrong: as if a year had passed
			}
			c.reopen(m.ID)
		}
		if got := offset(); got < was+year.Milliseconds() ||
			got > was+year.Milliseconds()+apart {
			t.Errorf("after a year the offset grew by %d ms", got-was)
		}
	})
}

// TestWrongWallClockAmongTheFirst restarts all nodes, one of which has a wall clock that is behind.
// It is among the two that begin, and the third, which is right, comes later: then the time of day
// is where those two are.
func TestWrongWallClockAmongTheFirst(t *testing.T) {
	for _, late := range []time.Duration{0, time.Second, time.Minute} {
		runSimulated(t, late.String(), func(t *testing.T) {
			c := newCluster(t, 3, nil)
			c.write(c.leader(), "w")
			offset := func() (ms int64) {
				t.Helper()
				if _, err := fmt.Sscan(c.read(c.leader(), "wall"), &ms); err != nil {
					t.Fatal(err)
				}
				return ms
			}
			was := offset()
			c.closeAll()
			for _, m := range c.members {
				c.clock(m.ID).shiftWall(10 * time.Hour)
			}
			c.clock("n2").shiftWall(-time.Hour)
			c.reopen("n1")
			c.reopen("n2")
			time.Sleep(late)
			c.reopen("n3")
			c.ready("n3")
			eventually(t, "the time of day is that of the majority", func() bool {
				grew := time.Duration(offset()-was) * time.Millisecond
				return grew >= 10*time.Hour && grew < 10*time.Hour+10*time.Minute
			})
		})
	}
}
