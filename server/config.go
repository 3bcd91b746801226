package server

// This file holds CONFIG: the parameters of Redis that are real here, some of them changeable while the server runs.

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
)

// settings are the limits that CONFIG SET changes.
type settings struct {
	maxClients  atomic.Int64
	idleTimeout atomic.Int64 // ns
}

func (c *settings) init(cfg Config) {
	c.maxClients.Store(int64(cfg.MaxClients))
	c.idleTimeout.Store(int64(cfg.IdleTimeout))
}

// param is one parameter. Without set it has one value; a frozen one cannot even be set to that, as on Redis.
type param struct {
	name     string
	get      func(*Server) string
	set      func(*Server, int64)
	share    func(*Server, string) error // in place of set: makes the value that of all nodes, or fails
	low, max int64                       // of set's number
	frozen   bool
}

func fixed(name, value string) param {
	return param{name: name, get: func(*Server) string { return value }}
}

var params = []param{
	{
		name: "maxclients", low: 1, max: 1<<32 - 1,
		get: func(s *Server) string { return formatInt(s.config.maxClients.Load()) },
		set: func(s *Server, n int64) { s.config.maxClients.Store(n) },
	},
	{
		name: "timeout", low: 0, max: 1<<31 - 1, // seconds
		get: func(s *Server) string { return formatInt(s.config.idleTimeout.Load() / int64(time.Second)) },
		set: func(s *Server, n int64) { s.config.idleTimeout.Store(n * int64(time.Second)) },
	},
	{
		name: "tracking-table-max-keys", low: 0, max: 1<<63 - 1,
		get: func(s *Server) string { return formatInt(s.tracking.maxKeys.Load()) },
		set: func(s *Server, n int64) { s.tracking.maxKeys.Store(n) },
	},
	{name: settingNotify, get: notifyText, share: (*Server).setNotify},
	{name: "port", frozen: true, get: func(s *Server) string { return strconv.Itoa(s.tcpPort()) }},
	{name: "databases", frozen: true, get: func(*Server) string { return strconv.Itoa(databases) }},
	{name: "cluster-enabled", frozen: true, get: func(*Server) string { return "no" }},
	{name: "daemonize", frozen: true, get: func(*Server) string { return "no" }},
	{name: "client-query-buffer-limit", get: func(s *Server) string { return strconv.Itoa(s.cfg.MaxRequestBytes) }},
	{name: "proto-max-bulk-len", get: func(s *Server) string { return strconv.Itoa(s.cfg.MaxRequestBytes) }},
	{name: "client-output-buffer-limit", get: func(s *Server) string {
		return "normal 0 0 0 slave 0 0 0 pubsub " + strconv.Itoa(s.cfg.MaxSubscriberBytes) + " 0 0"
	}},
	fixed("appendonly", "yes"), fixed("appendfsync", "always"), fixed("save", ""),
	fixed("maxmemory", "0"), fixed("maxmemory-policy", "noeviction"),
	fixed("requirepass", ""), fixed("replica-read-only", "no"),
}

func findParam(name []byte) *param {
	for i := range params {
		if is(name, params[i].name) {
			return &params[i]
		}
	}
	return nil
}

// configGet answers each parameter that a pattern matches once. A plain name is answered as it was asked.
func configGet(s *session, _ *commands.Spec, args [][]byte) {
	names := map[*param]string{}
	for _, a := range args[2:] {
		if !bytes.ContainsAny(a, "*?[") {
			if p := findParam(a); p != nil && names[p] == "" {
				names[p] = string(a)
			}
			continue
		}
		if err := commands.CheckPattern(a); err != nil {
			s.fail(err)
			return
		}
		pattern := bytes.ToLower(a)
		for i := range params {
			if p := &params[i]; names[p] == "" && commands.Glob(pattern, []byte(p.name)) {
				names[p] = p.name
			}
		}
	}
	s.w.Map(len(names))
	for i := range params {
		if p := &params[i]; names[p] != "" {
			s.w.BulkString(names[p])
			s.w.BulkString(p.get(s.srv))
		}
	}
}

// configSet changes all of the parameters or none.
func configSet(s *session, _ *commands.Spec, args [][]byte) {
	args = args[2:]
	if len(args)%2 != 0 {
		s.fail(commands.ErrSyntax)
		return
	}
	values, shared := map[*param]int64{}, map[*param]string{}
	seen := map[*param]bool{}
	for i := 0; i < len(args); i += 2 {
		p := findParam(args[i])
		if p == nil {
			s.fail(commands.Errorf("ERR Unknown option or number of arguments for CONFIG SET - '%s'", args[i]))
			return
		}
		if p.frozen {
			s.fail(setFailed(p, "can't set immutable config"))
			return
		}
		if seen[p] {
			s.fail(setFailed(p, "duplicate parameter"))
			return
		}
		seen[p] = true
	}
	for i := 0; i < len(args); i += 2 {
		p := findParam(args[i])
		if p.share != nil {
			shared[p] = string(args[i+1])
			continue
		}
		if p.set == nil {
			if !strings.EqualFold(p.get(s.srv), string(args[i+1])) {
				s.fail(setFailed(p, "can't set immutable config"))
				return
			}
			continue
		}
		n, ok := commands.ParseInt(args[i+1])
		if !ok {
			s.fail(setFailed(p, "argument couldn't be parsed into an integer"))
			return
		}
		if n < p.low || n > p.max {
			s.fail(setFailed(p, "argument must be between "+formatInt(p.low)+" and "+formatInt(p.max)+" inclusive"))
			return
		}
		values[p] = n
	}
	for p, text := range shared { // there is one: it can fail, so it comes first
		if err := p.share(s.srv, text); err != nil {
			s.fail(setFailed(p, err.Error()))
			return
		}
	}
	for p, n := range values {
		p.set(s.srv, n)
	}
	s.w.Status("OK")
}

func setFailed(p *param, why string) error {
	return commands.Errorf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", p.name, why)
}

func configResetStat(s *session, _ *commands.Spec, _ [][]byte) {
	s.srv.stats.reset()
	s.w.Status("OK")
}

func configRewrite(s *session, _ *commands.Spec, _ [][]byte) {
	s.fail(commands.Error("ERR The server is running without a config file"))
}

func (s *Server) tcpPort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}
