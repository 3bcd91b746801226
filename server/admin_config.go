// CONFIG; its parameters are in admin_params.go.

package server

import (
	"bytes"
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/resp"
)

// settings holds the values that CONFIG SET changes.
type settings struct {
	maxClients   atomic.Int64
	idleTimeout  atomic.Int64              // ns; 0: never
	keepAlive    atomic.Int64              // seconds; 0: never
	protected    atomic.Bool               // protected mode
	trackLatency atomic.Bool               // keep histograms of commands
	percentiles  atomic.Pointer[[]float64] // shown by INFO latencystats
	output       atomic.Pointer[outputLimits]
	rates        atomic.Pointer[rates] // nil: no limits
	minReplicas  atomic.Int64          // min-replicas-to-write
	accepted     acceptedValues
	leaderWaitMs atomic.Int64 // as CLIENT LEADER-WAIT; -1: as long as the backend lets
}

func (c *settings) init(cfg Config) {
	c.maxClients.Store(int64(cfg.MaxClients))
	c.idleTimeout.Store(int64(cfg.IdleTimeout))
	c.keepAlive.Store(int64(cfg.KeepAlive / time.Second))
	c.protected.Store(!cfg.Unprotected)
	c.trackLatency.Store(true)
	c.leaderWaitMs.Store(-1)
	c.percentiles.Store(&defaultPercentiles)
	limits := cfg.OutputLimits.in(defaultOutputLimits(cfg.MaxSubscriberBytes))
	c.output.Store(&limits)
	c.rates.Store(newRates(rateLimits{client: cfg.ClientRate, user: cfg.UserRate}))
}

// maxConfigPatterns bounds the patterns of one CONFIG GET: each is matched with every parameter.
const maxConfigPatterns = 1024

// seesShared reports whether CONFIG GET may show a parameter that all nodes share: by its name, or
// by a pattern.
func seesShared(args [][]byte) bool {
	if len(args)-2 > maxConfigPatterns {
		return false // it is refused
	}
	return slices.ContainsFunc(args[2:], func(a []byte) bool {
		p := findParam(a)
		return p != nil && p.share != nil || bytes.ContainsAny(a, "*?[")
	})
}

// configGet replies with each matching parameter once. A plain name is repeated as it was written.
func configGet(s *session, _ *commands.Spec, args [][]byte) {
	if len(args)-2 > maxConfigPatterns {
		s.fail(commands.Errorf("ERR too many parameters: CONFIG GET takes at most %d",
			maxConfigPatterns))
		return
	}
	names := map[*param]string{}
	for _, a := range args[2:] {
		if len(names) == len(params) {
			break
		}
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
		matches := matcher(ascii.AppendLower(nil, a), s.work)
		for i := range params {
			if p := &params[i]; !p.hidden && names[p] == "" && matches(p.name) {
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
	asked := make([]*param, 0, len(args)/2)
	for i := 0; i < len(args); i += 2 {
		p := findParam(args[i])
		switch {
		case p == nil:
			s.fail(commands.Errorf(
				"ERR Unknown option or number of arguments for CONFIG SET - '%s'",
				resp.Shown(args[i])))
			return
		case p.frozen:
			s.fail(setFailed(p, "can't set immutable config"))
			return
		case p.protected:
			s.fail(setFailed(p, "can't set protected config"))
			return
		case slices.Contains(asked, p):
			s.fail(setFailed(p, "duplicate parameter"))
			return
		}
		asked = append(asked, p)
	}
	changes := make([]func(*Server), len(asked))
	var shared []setting
	var first *param // that is shared
	for i, p := range asked {
		var err error
		if changes[i], err = p.change(s.srv, string(args[2*i+1])); err != nil {
			s.fail(setFailed(p, err.Error()))
			return
		}
		if p.share != nil {
			setting, _ := p.share(s.srv, string(args[2*i+1]))
			shared, first = append(shared, setting), cmp.Or(first, p)
		}
	}
	if len(shared) > 0 { // it can still fail, so it comes first
		if err := s.share(shared); err != nil {
			s.fail(setFailed(first, err.Error()))
			return
		}
	}
	for _, change := range changes {
		change(s.srv)
	}
	s.w.Status("OK")
}

// change validates a new value and returns the function that applies it.
func (p *param) change(s *Server, text string) (func(*Server), error) {
	switch {
	case p.share != nil:
		_, err := p.share(s, text)
		return func(*Server) {}, err
	case p.choose != nil:
		return p.choose(text)
	case p.set == nil:
		if !ascii.Equal(p.get(s), text) {
			return nil, commands.Error("can't set immutable config")
		}
		return func(*Server) {}, nil
	}
	n, ok := commands.ParseInt([]byte(text))
	if !ok {
		return nil, errNotInteger
	}
	if n < p.low || n > p.max {
		return nil, errRange(p.low, p.max)
	}
	if p.fits != nil {
		if err := p.fits(s, n); err != nil {
			return nil, err
		}
	}
	return func(s *Server) { p.set(s, n) }, nil
}

func setFailed(p *param, why string) error {
	return commands.Errorf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", p.name,
		why)
}

func configResetStat(s *session, _ *commands.Spec, _ [][]byte) {
	s.srv.stats.reset()
	s.w.Status("OK")
}

// ports returns the ports without and with TLS, 0 for none.
func (s *Server) ports() (plain, tls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port, s.tlsPort
}
