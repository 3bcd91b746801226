// coordd dev: a throwaway cluster in one process.

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/node"
)

// devNodes is the size of the throwaway cluster.
const devNodes = 3

func newDev(c console) *cobra.Command {
	cmd := &cobra.Command{Use: "dev",
		Short: "Runs a throwaway cluster of three nodes in one process"}
	port := cmd.Flags().String("port", "6379",
		"port of the first node, the others take the next two; 0: any free ports")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runDev(cmd.Context(), *port, c)
	}
	return cmd
}

// runDev runs a cluster of three nodes in this process until ctx ends, with real Raft over the
// loopback and real files in a temporary directory that it removes.
func runDev(ctx context.Context, portText string, c console) error {
	port, err := strconv.Atoi(portText)
	if err != nil || port < 0 || port > 65535-devNodes+1 {
		return fmt.Errorf("--port %s: must be from 0 to %d", portText, 65535-devNodes+1)
	}
	dir, err := os.MkdirTemp("", "coordd-dev-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	nodes, err := startDevNodes(port, dir, c.stderr)
	defer func() {
		for _, n := range nodes {
			_ = n.Close()
		}
	}()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.WaitReady(ctx) != nil {
			return nil // interrupted while starting
		}
	}
	fmt.Fprintf(c.stdout, "A cluster of three nodes is ready:\n")
	for _, n := range nodes {
		fmt.Fprintf(c.stdout, "  %s  redis://%s  http://%s/\n", n.ID(), n.Addr(), n.WebAddr())
	}
	_, first, _ := net.SplitHostPort(nodes[0].Addr())
	fmt.Fprintf(c.stdout,
		"Try:   redis-cli -p %s SET lock:1 me NX PX 30000\nCtrl-C stops the cluster and deletes "+
			"its data.\n", first)
	select {
	case <-ctx.Done():
		return nil
	case <-stopped(nodes):
		return nil
	case err = <-nodes[0].Failed():
	case err = <-nodes[1].Failed():
	case err = <-nodes[2].Failed():
	}
	return err
}

// stopped closes each node when a client asks it to stop. It returns a channel that is closed after
// the last node.
func stopped(nodes []*node.Node) <-chan struct{} {
	var running sync.WaitGroup
	for _, n := range nodes {
		running.Go(func() {
			<-n.Stopping()
			_ = n.Close()
		})
	}
	last := make(chan struct{})
	go func() {
		running.Wait()
		close(last)
	}()
	return last
}

// startDevNodes starts the nodes on port and the two after it, or on free ports if port is 0. If it
// fails, it returns what it started.
func startDevNodes(port int, dir string, stderr io.Writer) ([]*node.Node, error) {
	var nodes []*node.Node
	taken, members, err := devListeners(port)
	if err != nil {
		return nil, err
	}
	log := newLogger(stderr, slog.LevelWarn, "auto")
	for i, m := range members {
		cfg, err := parseConfig([]string{
			"--id", m.ID, "--listen", taken[i].Client.Addr().String(),
			"--peer-listen", m.PeerAddr, "--data-dir", filepath.Join(dir, m.ID),
			"--http-listen", "127.0.0.1:0",
		}, func(string) string { return "" })
		if err == nil {
			cfg.Members = members
			var n *node.Node
			if n, err = node.Start(cfg.Config, taken[i], log.With("node", m.ID)); err == nil {
				nodes = append(nodes, n)
			}
		}
		if err != nil {
			for _, l := range taken[i:] {
				l.Close()
			}
			return nodes, err
		}
	}
	return nodes, nil
}

// devListeners binds all sockets before a node starts: every node needs the peer ports of all.
func devListeners(port int) (taken []node.Listeners, members []cluster.Member, err error) {
	for i := range devNodes {
		p := 0
		if port != 0 {
			p = port + i
		}
		var l node.Listeners
		if l.Client, err = node.Listen("127.0.0.1:" + strconv.Itoa(p)); err == nil {
			l.Peer, err = node.Listen("127.0.0.1:0")
		}
		taken = append(taken, l)
		if err != nil {
			for _, l := range taken {
				l.Close()
			}
			return nil, nil, err
		}
		id := "n" + strconv.Itoa(i+1)
		members = append(members, cluster.Member{ID: id, PeerAddr: l.Peer.Addr().String()})
	}
	return taken, members, nil
}
