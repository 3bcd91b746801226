// Command kubernetes checks leader elections of Kubernetes' client-go that coordd holds, against
// the cluster that COORDD_ADDRS names. See the README beside this directory.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/testdata/clients/libraries/kubernetes/elector"
	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// checkLimit is how long one check may take.
const checkLimit = 40 * time.Second

// leaseDuration is how long a leader leads without a renewal.
const leaseDuration = 3 * time.Second

var addrs = strings.FieldsFunc(os.Getenv("COORDD_ADDRS"), func(r rune) bool { return r == ',' })

func main() {
	if len(addrs) == 0 {
		fmt.Fprintln(os.Stderr, "COORDD_ADDRS is not set")
		os.Exit(2)
	}
	klog.SetLogger(logr.Discard())
	out := json.NewEncoder(os.Stdout)
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"LeaderElector: three candidates on three nodes lead one at a time, tokens rise", inTurn},
		{"LeaderElector: who dies is followed when its time is over, not before", afterDeath},
		{"LeaderElector: who loses the lock stops, and the next has a larger token", stolen},
		{"LeaderElector: who has no answers stops before its time is over", unanswered},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
		line := map[string]any{"library": "kubernetes/client-go", "version": version(),
			"check": c.name, "ok": true}
		if err := c.run(ctx); err != nil {
			line["ok"], line["error"] = false, err.Error()
		}
		cancel()
		_ = out.Encode(line) // to a pipe whose reader waits for us
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, d := range info.Deps {
		if d.Path == "k8s.io/client-go" {
			return strings.TrimPrefix(d.Version, "v")
		}
	}
	return ""
}

// candidate is one of an election. It connects to a node of its own.
type candidate struct {
	lock *elector.Lock
	end  context.CancelFunc // of its campaign
	done chan struct{}      // closed when it has ended
}

// campaign has a candidate take part until it is ended. lead is called when it leads, with a
// context that ends when it does not any more; it resigns at the end, unless it is to die.
func campaign(ctx context.Context, key string, i int, dies bool,
	lead func(ctx context.Context, c *candidate)) *candidate {
	return campaignAt(ctx, key, addrs[i%len(addrs)], dies, lead)
}

func campaignAt(ctx context.Context, key, addr string, dies bool,
	lead func(ctx context.Context, c *candidate)) *candidate {
	ctx, end := context.WithCancel(ctx)
	lock := elector.New(&redis.Options{Addr: addr}, key, rand.Text())
	c := &candidate{lock, end, make(chan struct{})}
	go func() {
		defer close(c.done)
		defer lock.Close()
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: c.lock, LeaseDuration: leaseDuration, RenewDeadline: 2 * time.Second,
			RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: !dies, Name: key,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { lead(ctx, c) },
				OnStoppedLeading: func() {},
			},
		})
	}()
	return c
}

// wait waits for what somebody sends.
func wait[T any](ctx context.Context, what string, from <-chan T) (T, error) {
	select {
	case v := <-from:
		return v, nil
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("waited in vain: %s", what)
	}
}

func inTurn(ctx context.Context) error {
	key := "leader:" + rand.Text()
	var mu sync.Mutex
	var leading int
	var tokens []int64
	var errs error
	var all []*candidate
	for i := range 3 {
		all = append(all, campaign(ctx, key, i, false, func(_ context.Context, c *candidate) {
			mu.Lock()
			if leading++; leading > 1 {
				errs = errors.Join(errs, errors.New("two lead at a time"))
			}
			tokens = append(tokens, c.lock.Token())
			mu.Unlock()
			time.Sleep(300 * time.Millisecond)
			mu.Lock()
			leading--
			mu.Unlock()
			c.end()
		}))
	}
	for _, c := range all {
		if _, err := wait(ctx, "each leads once", c.done); err != nil {
			return err
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(tokens) != 3 || tokens[0] <= 0 || tokens[1] <= tokens[0] || tokens[2] <= tokens[1] {
		return fmt.Errorf("the tokens do not rise: %v", tokens)
	}
	return errs
}

func afterDeath(ctx context.Context) error {
	key := "leader:" + rand.Text()
	leads := make(chan *candidate, 2)
	lead := func(_ context.Context, c *candidate) { leads <- c }
	first := campaign(ctx, key, 0, true, lead)
	if _, err := wait(ctx, "the first leads", leads); err != nil {
		return err
	}
	second := campaign(ctx, key, 1, false, lead)
	defer second.end()
	time.Sleep(leaseDuration + time.Second)
	token := first.lock.Token()
	select {
	case <-leads:
		return errors.New("a leader that renews was followed")
	default:
	}
	first.end()
	died := time.Now()
	if _, err := wait(ctx, "the second leads", leads); err != nil {
		return err
	}
	// the last renewal was up to a RetryPeriod before the end, and a busy machine is late
	if after := time.Since(died); after < leaseDuration/2 || after > 3*leaseDuration {
		return fmt.Errorf("followed after %v of %v", after, leaseDuration)
	}
	if second.lock.Token() <= token {
		return fmt.Errorf("tokens %d, then %d", token, second.lock.Token())
	}
	return nil
}

func stolen(ctx context.Context) error {
	key := "leader:" + rand.Text()
	leads, lost := make(chan int64, 2), make(chan struct{}, 2)
	lead := func(ctx context.Context, c *candidate) {
		leads <- c.lock.Token()
		<-ctx.Done()
		lost <- struct{}{}
	}
	defer campaign(ctx, key, 0, false, lead).end()
	first, err := wait(ctx, "the first leads", leads)
	if err != nil {
		return err
	}
	operator := redis.NewClient(&redis.Options{Addr: addrs[0]})
	defer operator.Close()
	if err := operator.Do(ctx, "LOCK.STEAL", key, "operator", "PX", 500).Err(); err != nil {
		return err
	}
	if _, err := wait(ctx, "the first stops", lost); err != nil {
		return err
	}
	defer campaign(ctx, key, 1, false, lead).end()
	second, err := wait(ctx, "the second leads", leads)
	if err != nil {
		return err
	}
	if second <= first {
		return fmt.Errorf("tokens %d, then %d", first, second)
	}
	return nil
}

// hanging forwards connections to a node until it is told to hang.
func hanging(addr string) (l net.Listener, hang func(), err error) {
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	var mu sync.RWMutex
	pass := func(to, from net.Conn) {
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			if err != nil {
				to.Close()
				return
			}
			mu.RLock() // for ever, if it hangs
			_, _ = to.Write(b[:n])
			mu.RUnlock()
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			node, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			go pass(node, client)
			go pass(client, node)
		}
	}()
	return l, mu.Lock, nil
}

func unanswered(ctx context.Context) error {
	l, hang, err := hanging(addrs[0])
	if err != nil {
		return err
	}
	defer l.Close()
	leads, lost := make(chan struct{}, 1), make(chan struct{}, 1)
	c := campaignAt(ctx, "leader:"+rand.Text(), l.Addr().String(), true,
		func(ctx context.Context, _ *candidate) {
			leads <- struct{}{}
			<-ctx.Done()
			lost <- struct{}{}
		})
	defer c.end()
	if _, err := wait(ctx, "it leads", leads); err != nil {
		return err
	}
	hang()
	began := time.Now()
	if _, err := wait(ctx, "it stops", lost); err != nil {
		return err
	}
	if after := time.Since(began); after > leaseDuration {
		return fmt.Errorf("it leads for %v of %v without an answer", after, leaseDuration)
	}
	return nil
}
