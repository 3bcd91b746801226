// The command line of a node: what flags and environment variables say, with checks and defaults.

package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

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
	said                []setting // one for each option, in the order of options
}

// setting is the value of an option, and the flag or the variable that sets it. Without one, the
// configuration file may.
type setting struct{ value, by string }

// readConfig returns what the flags of a node say, which were parsed, or for those not given the
// environment, or for those not set the configuration file.
type readConfig func(getenv func(string) string) (*config, error)

// checked is readConfig for a node that is to run: it refuses open doors.
func (read readConfig) checked(getenv func(string) string) (*config, error) {
	c, err := read(getenv)
	if err != nil {
		return nil, err
	}
	return c, c.checkOpenDoors()
}

// parseConfig reads the flags of a node alone.
func parseConfig(args []string, getenv func(string) string) (*config, error) {
	flags := pflag.NewFlagSet("coordd", pflag.ContinueOnError)
	read := nodeFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	return read.checked(getenv)
}

// nodeFlags declares the options of a node as flags.
func nodeFlags(flags *pflag.FlagSet) readConfig {
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(currentName(name))
	})
	for i, o := range options {
		title := nodeTitle
		if i >= len(startOptions) {
			title = liveTitle
		}
		usage := o.usage + " [" + o.env() + "]"
		if o.isSwitch() {
			value := switchFlag(o.value)
			flags.VarPF(&value, o.name, "", usage).NoOptDefVal = "true"
		} else {
			flags.String(o.name, o.value, usage)
		}
		_ = flags.SetAnnotation(o.name, titleOf, []string{title}) // the flag exists
	}
	return func(getenv func(string) string) (*config, error) { return readOptions(flags, getenv) }
}

// readOptions sets each option.
func readOptions(flags *pflag.FlagSet, getenv func(string) string) (*config, error) {
	c := &config{}
	var said map[string]fileOption
	for _, o := range options {
		given := flags.Lookup(o.name)
		now, where := setting{value: given.Value.String()}, "--"+o.name
		if given.Changed {
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
		// What is given, and empty, is an unset variable of a script: the node would found a
		// cluster of its own instead.
		for i, o := range options {
			if c.said[i].by != "" &&
				slices.Contains([]string{"cluster", "join", "discover"}, o.name) {
				return fmt.Errorf("%s is empty: name nodes, or leave it out for a cluster of this "+
					"node alone", c.said[i].by)
			}
		}
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
