// The options that a running node can change: CONFIG SET does, and SIGHUP after a change of the
// configuration file.

package main

import (
	"slices"
	"time"

	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/server"
)

// liveOption is an option with a parameter of CONFIG. The two may write values differently.
type liveOption struct {
	option
	param     string                 // empty: CONFIG does not show it
	toParam   func(c *config) string // the parameter's value; nil: the option's
	fromParam func(v string) string  // the option's value; nil: the parameter's
}

var liveOptions = []liveOption{
	{option: option{
		"log-level", "info",
		"debug, info, warn or error",
		setChoice(func(c *config) *string { return &c.logLevel }, "debug", "info", "warn", "error"),
	}},
	{option: option{
		"max-clients", "10000",
		"limit of client connections",
		setNumber(func(c *config, n int) { c.MaxClients = n }, 1),
	}, param: "maxclients"},
	{option: option{
		"max-user-clients", "0",
		"limit of client connections of each user who may not call CLIENT KILL; 0: none",
		setNumber(func(c *config, n int) { c.MaxUserClients = n }, 0),
	}, param: "coordd-max-user-clients"},
	{option: option{
		"maxmemory-clients", "10%",
		"memory limit of all client connections together, such as 512mb, or a percentage of " +
			"the process's memory; past it the largest are closed; 0: no limit",
		setClientMemory,
	}, param: "maxmemory-clients"},
	{
		option: option{
			"client-output-buffer-limit", "",
			"output that may wait for a client, as class hard soft seconds …, such as " +
				"\"pubsub 32mb 8mb 60\"; class: normal or pubsub; overrides --max-subscriber-bytes",
			setOutputLimits,
		},
		param:   "client-output-buffer-limit",
		toParam: func(c *config) string { return c.OutputLimits.Text(c.MaxSubscriberBytes) },
	},
	{
		option: option{
			"timeout", "0s",
			"idle time after which a client is closed; 0: never",
			setSeconds(func(c *config) *time.Duration { return &c.IdleTimeout }),
		},
		param:     "timeout",
		toParam:   func(c *config) string { return secondsText(c.IdleTimeout) },
		fromParam: fromSeconds,
	},
	{
		option: option{
			"tcp-keepalive", "60s",
			"silence after which TCP asks three times whether a client is still there, in steps " +
				"of a third of this; 0: never",
			setSeconds(func(c *config) *time.Duration { return &c.KeepAlive }),
		},
		param:     "tcp-keepalive",
		toParam:   func(c *config) string { return secondsText(c.KeepAlive) },
		fromParam: fromSeconds,
	},
	{option: option{
		"protected-mode", "yes",
		"no: also serve other machines while the default user needs no password",
		setProtected,
	}, param: "protected-mode"},
	{option: option{
		"allow-from", "",
		"addresses and networks, such as 10.1.0.0/16,fd00::/8, that clients may connect from, " +
			"besides this machine; empty: all",
		setAddresses(func(c *config) *halfopen.Addresses { return &c.AllowFrom }),
	}, param: "coordd-allow-from", toParam: func(c *config) string { return c.AllowFrom.String() }},
	{option: option{
		"http-allow-from", "",
		"the same for --http-listen; empty: those of --allow-from",
		setAddresses(func(c *config) *halfopen.Addresses { return &c.HTTPAllowFrom }),
	}, param: "coordd-http-allow-from",
		toParam: func(c *config) string { return c.HTTPAllowFrom.String() }},
	{option: option{
		"client-rate", "0",
		"requests, bytes or both that each connection may send in a second, such as " +
			"1000/s,1mb/s; what is more waits; 0: no limit",
		setRate(func(c *config) *server.Rate { return &c.ClientRate }),
	}, param: "coordd-client-rate"},
	{option: option{
		"user-rate", "0",
		"the same for all connections of a user to this node together",
		setRate(func(c *config) *server.Rate { return &c.UserRate }),
	}, param: "coordd-user-rate"},
	{option: option{
		"lock-labels", "",
		"prefixes of keys, separated by spaces, each with =label if that is not the prefix: " +
			"locks and windows are counted by label; the rest is \"other\"",
		setLockLabels,
	}, param: "coordd-lock-labels"},
	parameter("coordd-leader-wait", "-1",
		"milliseconds that requests wait while there is no leader, at most --leader-wait, unless "+
			"CLIENT LEADER-WAIT says otherwise; -1: as long as that"),
	parameter("slowlog-log-slower-than", "10000",
		"microseconds that a request takes to be in SLOWLOG; 0: all, -1: none"),
	parameter("slowlog-max-len", "128", "requests that SLOWLOG keeps"),
	parameter("commandlog-request-larger-than", "1048576",
		"bytes of a request that COMMANDLOG notes; 0: all, -1: none"),
	parameter("commandlog-large-request-max-len", "128", "large requests that COMMANDLOG keeps"),
	parameter("commandlog-reply-larger-than", "1048576",
		"bytes of a reply that COMMANDLOG notes; 0: all, -1: none"),
	parameter("commandlog-large-reply-max-len", "128", "large replies that COMMANDLOG keeps"),
	parameter("acllog-max-len", "128", "denials that ACL LOG keeps"),
	parameter("latency-monitor-threshold", "0",
		"milliseconds that an event takes to be in LATENCY; 0: none"),
	parameter("latency-tracking", "yes", "yes or no: keep histograms of the latency of commands"),
	parameter("latency-tracking-info-percentiles", "50 99 99.9",
		"percentiles in INFO latencystats"),
	parameter("tracking-table-max-keys", "1000000",
		"keys that clients with CLIENT TRACKING may have cached; 0: no limit"),
}

// parameter returns the option of the parameter of CONFIG of that name.
func parameter(name, value, usage string) liveOption {
	return liveOption{param: name, option: option{name, value, usage,
		func(c *config, v string) error {
			c.Parameters = append(c.Parameters, server.Parameter{Name: name, Value: v})
			return server.CheckParameter(name, v)
		}}}
}

// paramValue returns the option's value, which c has parsed from text, as CONFIG SET takes it.
func (l *liveOption) paramValue(c *config, text string) string {
	if l.toParam == nil {
		return text
	}
	return l.toParam(c)
}

// optionValue returns the parameter's value as the option takes it.
func (l *liveOption) optionValue(param string) string {
	if l.fromParam == nil {
		return param
	}
	return l.fromParam(param)
}

// liveNamed returns the live option of that name, or nil.
func liveNamed(name string) *liveOption {
	i := slices.IndexFunc(liveOptions, func(l liveOption) bool { return l.name == name })
	if i < 0 {
		return nil
	}
	return &liveOptions[i]
}

// liveFor returns the option for a parameter of CONFIG, or nil.
func liveFor(param string) *liveOption {
	i := slices.IndexFunc(liveOptions, func(l liveOption) bool { return l.param == param })
	if i < 0 {
		return nil
	}
	return &liveOptions[i]
}
