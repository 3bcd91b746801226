package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/coordd/coordd/cluster"
)

// devNodes is the size of the throwaway cluster.
const devNodes = 3

// runDev runs a cluster of three nodes in this process until ctx ends: real Raft over the loopback, real files in a temporary
// directory that is removed at the end.
func runDev(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlagSet("coordd dev")
	portText := fs.String("port", "6379", "")
	if _, err := parseArgs(fs, args); err != nil {
		return err
	}
	port, err := strconv.Atoi(*portText)
	if err != nil || port < 0 || port > 65535-devNodes+1 {
		return fmt.Errorf("--port %s: it has to be a number from 0 to %d", *portText, 65535-devNodes+1)
	}
	dir, err := os.MkdirTemp("", "coordd-dev-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	nodes, err := startDevNodes(port, dir, stderr)
	defer func() {
		for _, n := range nodes {
			_ = n.close()
		}
	}()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.waitReady(ctx) != nil {
			return nil // interrupted while starting
		}
	}
	fmt.Fprintf(stdout, "A cluster of three nodes is ready:\n")
	for _, n := range nodes {
		fmt.Fprintf(stdout, "  %s  redis://%s\n", n.cfg.id, n.addr())
	}
	_, first, _ := net.SplitHostPort(nodes[0].addr())
	fmt.Fprintf(stdout, "Try:   redis-cli -p %s SET lock:1 me NX PX 30000\nIts data are gone when it stops: Ctrl-C.\n", first)
	select {
	case <-ctx.Done():
		return nil
	case <-stopped(nodes):
		return nil
	case err = <-nodes[0].failed:
	case err = <-nodes[1].failed:
	case err = <-nodes[2].failed:
	}
	return err
}

// stopped closes each node when a client asks it to stop. The channel that it returns is closed when the last one is.
func stopped(nodes []*node) <-chan struct{} {
	var running sync.WaitGroup
	for _, n := range nodes {
		running.Go(func() {
			<-n.stop
			_ = n.close()
		})
	}
	last := make(chan struct{})
	go func() {
		running.Wait()
		close(last)
	}()
	return last
}

// startDevNodes starts the nodes on port and the two after it, or on free ports if port is 0. On an error it returns what it started.
// adjust, where given, is told each node's configuration before it starts.
func startDevNodes(port int, dir string, stderr io.Writer, adjust ...func(*config)) ([]*node, error) {
	var nodes []*node
	var taken []listeners
	var members []cluster.Member
	for i := range devNodes {
		p := 0
		if port != 0 {
			p = port + i
		}
		var l listeners
		var err error
		if l.client, err = listen("127.0.0.1:" + strconv.Itoa(p)); err == nil {
			l.peer, err = listen("127.0.0.1:0")
		}
		taken = append(taken, l)
		if err != nil {
			for _, l := range taken {
				l.close()
			}
			return nil, err
		}
		members = append(members, cluster.Member{ID: "n" + strconv.Itoa(i+1), PeerAddr: l.peer.Addr().String()})
	}
	log := newLogger(stderr, "warn", "auto")
	for i, m := range members {
		cfg, err := parseConfig([]string{
			"--id", m.ID, "--listen", taken[i].client.Addr().String(),
			"--peer-listen", m.PeerAddr, "--data-dir", filepath.Join(dir, m.ID),
		}, func(string) string { return "" })
		if err == nil {
			cfg.cluster = members
			for _, f := range adjust {
				f(cfg)
			}
			var n *node
			if n, err = startNode(cfg, taken[i], log.With("node", m.ID)); err == nil {
				nodes = append(nodes, n)
			}
		}
		if err != nil {
			for _, l := range taken[i:] {
				l.close()
			}
			return nodes, err
		}
	}
	return nodes, nil
}
