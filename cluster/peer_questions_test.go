package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestQuestions asks all members of a cluster in which one hangs, one is cut off and one is of an
// earlier version.
func TestQuestions(t *testing.T) {
	simulated(t, func(t *testing.T) {
		hang := make(chan struct{})
		c := newCluster(t, 5, func(cfg *Config) {
			id := cfg.ID
			cfg.Answer = func(question []byte) []byte {
				switch q := string(question); {
				case id == "n2" && q == "hang":
					<-hang
				case q == "no answer" && id != "n3":
					return nil
				case q == "too large" && id != "n3":
					return make([]byte, MaxAnswer+1)
				}
				return []byte(id + " " + string(question))
			}
		})
		ask := func(question string) (texts []string) {
			answers, silent := c.nodes["n1"].AskOthers(context.Background(), []byte(question))
			for _, a := range answers {
				texts = append(texts, string(a))
			}
			slices.Sort(texts)
			for _, id := range silent {
				texts = append(texts, "no "+id)
			}
			return texts
		}
		wants := func(question, want string) {
			t.Helper()
			eventually(t, want, func() bool {
				return strings.Join(ask(question), ",") == want
			})
		}
		wants("a", "n2 a,n3 a,n4 a,n5 a")
		wants("no answer", "n3 no answer,no n2,no n4,no n5")
		wants("too large", "n3 too large,no n2,no n4,no n5")
		wants(strings.Repeat("a", MaxQuestion+1), "no n2,no n3,no n4,no n5")

		began := time.Now()
		got := strings.Join(ask("hang"), ",")
		if got != "n3 hang,n4 hang,n5 hang,no n2" || time.Since(began) < answerWait {
			t.Errorf("%q after %v", got, time.Since(began))
		}
		began = time.Now()
		got = strings.Join(ask("hang"), ",")
		if got != "n3 hang,n4 hang,n5 hang,no n2" || time.Since(began) >= answerWait {
			t.Errorf("a member that was late: %q after %v", got, time.Since(began))
		}
		close(hang)
		wants("a", "n2 a,n3 a,n4 a,n5 a")

		c.net.refuse("n1", "n4") // which is connected to n1 all the same
		eventually(t, "no link", func() bool { return !c.nodes["n1"].link("n4").up() })
		time.Sleep(2 * answerWait)
		if got := strings.Join(ask("a"), ","); got != "n2 a,n3 a,n5 a,no n4" {
			t.Errorf("a member that cannot be dialed: %q", got)
		}
		c.net.isolate("n4")
		wants("a", "n2 a,n3 a,n5 a")

		n5 := c.nodes["n1"].link("n5")
		c.net.isolate("n5")
		eventually(t, "no link", func() bool {
			return !n5.up() && !c.nodes["n1"].hasInbound("n5")
		})
		if got := strings.Join(ask("a"), ","); got != "n2 a,n3 a,no n5" {
			t.Errorf("a member that was there a moment ago: %q", got)
		}
		wants("a", "n2 a,n3 a")
		c.net.heal("n5")
		wants("a", "n2 a,n3 a,n5 a")
		n5.mu.Lock()
		n5.peer.abilities &^= abilityQuestions
		n5.mu.Unlock()
		wants("a", "n2 a,n3 a,no n5")
	})
}

// Many ask at a time, more than fit what a connection has underway otherwise, of members that take
// a while: all get all answers.
func TestManyQuestions(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.Answer = func(question []byte) []byte {
				time.Sleep(answerWait / 4)
				return question[:1]
			}
		})
		n := c.nodes["n2"]
		eventually(t, "both links", func() bool {
			answers, _ := n.AskOthers(context.Background(), []byte("a"))
			return len(answers) == 2
		})
		short := make(chan int, 4*int(turnWait/answerWait)*maxQuestions/2)
		for range cap(short) {
			go func() {
				answers, silent := n.AskOthers(context.Background(), make([]byte, MaxQuestion))
				short <- 2 - len(answers) + len(silent)
			}()
		}
		for range cap(short) {
			if missing := <-short; missing > 0 {
				t.Fatalf("%d answers are missing", missing)
			}
		}
	})
}
