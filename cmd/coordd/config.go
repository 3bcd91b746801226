// The command line of a node: what flags and environment variables say, with checks and defaults.

package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

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
	said                []setting // of each option
}

// setting is the value of an option, and the flag or the variable that sets it. Without one, the
// configuration file may.
type setting struct{ value, by string }

// parseConfig reads flags and, for those not given, environment variables. It returns a helpRequest
// for --help.
func parseConfig(args []string, getenv func(string) string) (*config, error) {
	c, _, err := parseNode(newFlagSet("coordd"), args, getenv)
	if err != nil {
		return nil, err
	}
	return c, c.checkOpenDoors()
}

// parseNode parses the flags of a node beside those that fs has, and other arguments as parseArgs
// does. Unlike parseConfig it accepts open doors.
func parseNode(fs *flag.FlagSet, args []string, getenv func(string) string, names ...string) (
	c *config, others []string, err error) {
	given := nodeFlags(fs)
	if others, err = parseArgs(fs, args, names...); err != nil {
		return nil, nil, err
	}
	c, err = readConfig(fs, given, getenv)
	return c, others, err
}

// readConfig reads the node's flags, for those not given environment variables, and for those not
// set the configuration file.
func readConfig(fs *flag.FlagSet, given []*string, getenv func(string) string) (*config, error) {
	onLine := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { onLine[currentName(f.Name)] = true })
	c := &config{}
	var said map[string]fileOption
	for i, o := range options {
		now, where := setting{value: *given[i]}, "--"+o.name
		if onLine[o.name] {
			now.by = where
		} else if v, variable := o.inEnv(getenv); v != "" {
			where = variable
			now = setting{v, where}
		} else if v, ok := said[o.name]; ok {
			now.value, where = v.value, fmt.Sprintf("%s:%d: %s", c.ConfigFile, v.line, o.name)
		}
		if err := o.set(c, now.value); err != nil {
			return nil, fmt.Errorf("%s %q: %w", where, shown(now.value), err)
		}
		c.said = append(c.said, now)
		if o.name == configOption && c.ConfigFile != "" { // the first option
			var err error
			if said, err = readConfigFile(c.ConfigFile); err != nil {
				return nil, err
			}
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
	if c.AutoremoveAfter > 0 && c.AutoremoveAfter < time.Second {
		return fmt.Errorf("--autoremove-after %v: must be 0 or at least 1s", c.AutoremoveAfter)
	}
	if len(c.Join) > 0 || len(c.Discover) > 0 {
		return c.completeJoin()
	}
	switch {
	case c.Founders > 0:
		return errors.New("--founders requires --discover")
	case c.Learner:
		return errors.New(
			"--learner requires --join or --discover: a learner does not found a cluster")
	}
	if len(c.Members) == 0 {
		// A single node has no peers, but Raft needs an address: a free port on the loopback.
		if c.PeerListen == "" {
			c.PeerListen = "127.0.0.1:0"
		}
		return c.completeAddresses()
	}
	c.AutoID = false // a node of that name
	i := slices.IndexFunc(c.Members, func(m cluster.Member) bool { return m.ID == c.ID })
	if i < 0 {
		return fmt.Errorf("--id %s is not in --cluster", c.ID)
	}
	if c.PeerListen == "" {
		c.PeerListen = c.Members[i].PeerAddr
	}
	if c.PeerAdvertise == "" {
		c.PeerAdvertise, c.PeerGuessed = c.Members[i].PeerAddr, true
	}
	return c.completeAddresses()
}
