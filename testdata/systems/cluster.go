package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/ports"
)

// cluster is three coordd processes.
type cluster struct {
	addrs []string
	begin func(i int) (*exec.Cmd, error)
	nodes []*exec.Cmd
}

func startCluster(ctx context.Context, dir, binary string) (*cluster, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	free, err := ports.Free(6)
	if err != nil {
		return nil, err
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", free[i]) }
	members := fmt.Sprintf("n1=%s,n2=%s,n3=%s", at(3), at(4), at(5))
	c := &cluster{addrs: []string{at(0), at(1), at(2)}}
	c.begin = func(i int) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, binary, "--cluster", members,
			"--id", fmt.Sprintf("n%d", i+1), "--listen", at(i),
			"--data-dir", filepath.Join(dir, fmt.Sprint(i)), "--log-level", "error")
		cmd.Stderr = os.Stderr
		return cmd, cmd.Start()
	}
	for i := range c.addrs {
		cmd, err := c.begin(i)
		if err != nil {
			c.stop()
			return nil, err
		}
		c.nodes = append(c.nodes, cmd)
	}
	if err := c.ready(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// ready waits for every node to serve all commands, also those of the session.
func (c *cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, addr := range c.addrs {
		for {
			_, err := ask(addr, "CLIENT", "LIST")
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s does not serve: %w", addr, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

func (c *cluster) stop() {
	for _, cmd := range c.nodes {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
}

// leader waits for a node whose ROLE is master.
func (c *cluster) leader(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		for i, addr := range c.addrs {
			if role, err := ask(addr, "ROLE"); err == nil && role == "master" {
				return i, nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, errors.New("no node leads")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *cluster) killLeader(ctx context.Context) error {
	i, err := c.leader(ctx)
	if err != nil {
		return err
	}
	_ = c.nodes[i].Process.Kill()
	_ = c.nodes[i].Wait() // it was killed
	time.Sleep(2 * time.Second)
	c.nodes[i], err = c.begin(i)
	return err
}

// handOver lets the leader give its office to another node.
func (c *cluster) handOver(ctx context.Context) error {
	i, err := c.leader(ctx)
	if err != nil {
		return err
	}
	_, err = ask(c.addrs[i], "FAILOVER")
	return err
}

// ask sends one command and returns its answer, of an array the first element.
func ask(addr string, command ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second)) // a read tells what went wrong
	if _, err := conn.Write(resp.AppendCommand(nil, command...)); err != nil {
		return "", err
	}
	v, err := resp.NewReader(conn).Value()
	switch {
	case err != nil:
		return "", err
	case v.IsError():
		return "", errors.New(v.Text)
	case len(v.Elems) > 0:
		return v.Elems[0].Text, nil
	}
	return v.Text, nil
}
