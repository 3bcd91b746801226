package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// servers are what is compared, each with its port on the loopback.
type servers struct {
	redis, leader, follower string

	dir     string
	cancel  context.CancelFunc
	started []*exec.Cmd
}

// startServers starts a redis-server that fsyncs every write and a cluster of three coordd
// processes.
func startServers() (_ *servers, err error) {
	for _, tool := range []string{"redis-server", "redis-benchmark", "redis-cli"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is needed", tool)
		}
	}
	s := &servers{}
	if s.dir, err = os.MkdirTemp("", "coordd-bench-"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	ports, err := freePorts(7)
	if err != nil {
		return nil, err
	}
	s.redis = ports[0]
	redisDir := filepath.Join(s.dir, "redis")
	if err := os.Mkdir(redisDir, 0o700); err != nil {
		return nil, err
	}
	if err := s.start(ctx, "redis-server", "--port", s.redis, "--bind", "127.0.0.1", "--dir",
		redisDir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "always", "--loglevel",
		"warning"); err != nil {
		return nil, err
	}
	binary := filepath.Join(s.dir, "coordd")
	if out, err := exec.Command("go", "build", "-o", binary,
		"./cmd/coordd").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %s", out)
	}
	members := fmt.Sprintf("n1=127.0.0.1:%s,n2=127.0.0.1:%s,n3=127.0.0.1:%s", ports[4], ports[5],
		ports[6])
	for i := range 3 {
		id := "n" + strconv.Itoa(i+1)
		if err := s.start(ctx, binary, "--id", id, "--listen", "127.0.0.1:"+ports[1+i], "--cluster",
			members,
			"--data-dir", filepath.Join(s.dir, id), "--log-level", "warn"); err != nil {
			return nil, err
		}
	}
	s.leader, s.follower, err = findLeader(ports[1:4])
	return s, err
}

func (s *servers) start(ctx context.Context, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return err
	}
	s.started = append(s.started, c)
	return nil
}

// end kills the servers and removes their files.
func (s *servers) end() {
	s.cancel()
	for _, c := range s.started {
		_ = c.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// findLeader waits until a node calls itself master, and returns its port and another one's.
func findLeader(ports []string) (leader, follower string, err error) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		for i, p := range ports {
			if role(p) == "master" {
				return p, ports[(i+1)%len(ports)], nil
			}
		}
	}
	return "", "", errors.New("the cluster has no leader")
}

// role returns the first word of a node's ROLE; empty if it does not reply.
func role(port string) string {
	c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(resp.AppendCommand(nil, "ROLE"))
	v, err := resp.NewReader(c).Value()
	if err != nil || len(v.Elems) == 0 {
		return ""
	}
	return v.Elems[0].Text
}

// freePorts finds n ports of the loopback that nobody listens on.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}
