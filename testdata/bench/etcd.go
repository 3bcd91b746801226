package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// startEtcd starts three nodes.
func (s *servers) startEtcd() (*cluster, error) {
	return s.keep("etcd, 3 nodes", func() (*cluster, error) {
		if _, err := exec.LookPath("etcd"); err != nil {
			return nil, errors.New("etcd-server is needed: sh .ci/deps bench")
		}
		ports, err := freePorts(6)
		if err != nil {
			return nil, err
		}
		c := &cluster{}
		var members []string
		for i := range 3 {
			members = append(members, fmt.Sprintf("e%d=http://127.0.0.1:%s", i, ports[3+i]))
		}
		for i := range 3 {
			dir, err := s.newDir()
			if err != nil {
				return nil, err
			}
			client, peer := "http://127.0.0.1:"+ports[i], "http://127.0.0.1:"+ports[3+i]
			c.nodes = append(c.nodes, &node{port: ports[i], args: []string{"etcd",
				"--name", "e" + strconv.Itoa(i), "--data-dir", dir, "--logger", "zap",
				"--log-outputs", filepath.Join(dir, "log"),
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
				"--initial-cluster", strings.Join(members, ","),
				"--initial-cluster-state", "new"}})
		}
		return c, s.run(c)
	})
}

// etcdConns is how many connections the clients of etcd share, as in etcd's own benchmark tool: one
// for each would be slower.
const etcdConns = 10

// etcdLocks measures locks that clients take and release with a transaction each. They have no
// lease, which etcd would replicate besides.
func etcdLocks(clients int) measurement {
	return func(s *servers, work time.Duration) (o outcome, err error) {
		c, err := s.startEtcd()
		if err != nil {
			return o, err
		}
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		leader, err := etcdLeader(ctx, c)
		if err != nil {
			return o, err
		}
		var conns []*clientv3.Client
		for range etcdConns {
			conn, err := dialEtcd(leader)
			if err != nil {
				return o, err
			}
			defer conn.Close()
			conns = append(conns, conn)
		}
		run := strconv.FormatInt(time.Now().UnixNano(), 36) + ":"
		meters := make([]meter, clients)
		failed := make(chan error, clients)
		begin := time.Now().Add(warmUp)
		end := begin.Add(work)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					sent := time.Now()
					if err := etcdRequest(ctx, conns[i%etcdConns], run, i, n); err != nil {
						failed <- err
						return
					}
					meters[i].on = sent.After(begin)
					meters[i].done(sent)
				}
			})
		}
		t := &target{name: "etcd", of: c}
		time.Sleep(warmUp)
		before, _ := t.cpu()
		wg.Wait()
		select {
		case err := <-failed:
			return o, fmt.Errorf("etcd: %w", err)
		default:
		}
		for i := range meters {
			o.waits = append(o.waits, meters[i].waits...)
		}
		slices.Sort(o.waits)
		o.value = float64(len(o.waits)) / work.Seconds()
		after, _ := t.cpu()
		o.cpu = (after - before) / time.Duration(max(1, len(o.waits)))
		return o, nil
	}
}

func dialEtcd(n *node) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:" + n.port},
		DialTimeout: 20 * time.Second, Logger: zap.NewNop()})
}

// etcdLeader waits until a node calls itself the leader.
func etcdLeader(ctx context.Context, c *cluster) (*node, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		for _, n := range c.nodes {
			conn, err := dialEtcd(n)
			if err != nil {
				return nil, err
			}
			st, err := conn.Status(ctx, "127.0.0.1:"+n.port)
			_ = conn.Close()
			if err == nil && st.Leader == st.Header.MemberId {
				return n, nil
			}
		}
	}
	return nil, errors.New("etcd has no leader")
}

// etcdRequest takes a lock if n is even, and releases it otherwise.
func etcdRequest(ctx context.Context, c *clientv3.Client, run string, client, n int) error {
	key := fresh(run, client, n/2)
	if n%2 == 1 {
		_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", "owner")).
			Then(clientv3.OpDelete(key)).Commit()
		return err
	}
	r, err := c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "owner")).Commit()
	if err == nil && !r.Succeeded {
		err = fmt.Errorf("%s is held", key)
	}
	return err
}
