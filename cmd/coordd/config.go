// The command line of a node: what flags and environment variables say, with checks and defaults.

package main

import (
	"flag"
	"fmt"
	"slices"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/node"
)

// config is what the command line and the environment say.
type config struct {
	node.Config
	logLevel, logFormat string
	joinPasswordFile    string
	defaultPasswordFile string
	insecurePeers       bool
	httpPage            bool
	clientAuth          string
}

// parseConfig reads flags and, for those not given, environment variables. It returns a helpRequest
// for --help.
func parseConfig(args []string, getenv func(string) string) (*config, error) {
	fs := newFlagSet("coordd")
	given := nodeFlags(fs)
	if _, err := parseArgs(fs, args); err != nil {
		return nil, err
	}
	c, err := readConfig(fs, given, getenv)
	if err != nil {
		return nil, err
	}
	return c, c.checkOpenDoors()
}

// readConfig reads the node's flags and, for those not given, environment variables.
func readConfig(fs *flag.FlagSet, given []*string, getenv func(string) string) (*config, error) {
	onLine := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { onLine[f.Name] = true })
	c := &config{}
	for i, o := range options {
		value, from := *given[i], "--"+o.name
		if v := getenv(o.env()); v != "" && !onLine[o.name] {
			value, from = v, o.env()
		}
		if err := o.set(c, value); err != nil {
			return nil, fmt.Errorf("%s %q: %w", from, shown(value), err)
		}
	}
	if len(c.Join) > 0 {
		var err error
		as := credentials{file: c.joinPasswordFile, fileFlag: "join-password-file",
			env: "COORDD_JOIN_PASSWORD"}
		if c.JoinPassword, err = as.password(getenv); err != nil {
			return nil, err
		}
	}
	return c, c.complete()
}

// complete derives options from others and checks that they fit together.
func (c *config) complete() error {
	c.Version = versionText()
	if err := c.completeUsers(); err != nil {
		return err
	}
	if err := c.completeTLS(); err != nil {
		return err
	}
	if c.LeaderWait == 0 {
		c.LeaderWait = -1 // no wait; 0 is the node's default
	}
	if c.MaxRequestBytes > cluster.MaxBatchBytes {
		return fmt.Errorf("--max-request-bytes %d: must be %d or less", c.MaxRequestBytes,
			cluster.MaxBatchBytes)
	}
	if len(c.Join) > 0 {
		return c.completeJoin()
	}
	if len(c.Members) == 0 {
		// A single node has no peers, but Raft needs an address: a free port on the loopback.
		if c.PeerListen == "" {
			c.PeerListen = "127.0.0.1:0"
		}
		return c.completeAddresses()
	}
	i := slices.IndexFunc(c.Members, func(m cluster.Member) bool { return m.ID == c.ID })
	if i < 0 {
		return fmt.Errorf("--id %s is not in --cluster", c.ID)
	}
	if c.PeerListen == "" {
		c.PeerListen = c.Members[i].PeerAddr
	}
	if c.PeerAdvertise == "" {
		c.PeerAdvertise = c.Members[i].PeerAddr
	}
	return c.completeAddresses()
}
