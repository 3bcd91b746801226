// The process's configuration beside CONFIG: the first values of parameters, those that it changes
// while the server runs, and CONFIG REWRITE, which writes back what CONFIG SET has changed.

package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

// Parameter is a value for a parameter of CONFIG.
type Parameter struct{ Name, Value string }

// CheckParameter reports why the text is no value for a parameter of this node.
func CheckParameter(name, text string) error {
	_, err := findParam([]byte(name)).change(nil, text)
	if err != nil {
		return commands.Error(strings.TrimPrefix(err.Error(), "argument "))
	}
	return nil
}

// configured has the value of each parameter that CONFIG SET changes on this node alone, as the
// process's configuration made it.
type configured struct {
	mu     lockorder.Mutex
	values map[*param]string
}

// ofNode reports whether CONFIG SET changes the parameter on this node alone.
func (p *param) ofNode() bool { return (p.set != nil || p.choose != nil) && !p.accepted }

// initParameters sets the first values, after those of Config's other fields.
func (s *Server) initParameters() {
	for _, v := range s.cfg.Parameters {
		p := findParam([]byte(v.Name))
		if change, err := p.change(s, v.Value); err == nil { // CheckParameter was asked
			change(s)
		}
	}
	s.configured.values = map[*param]string{}
	for i := range params {
		if p := &params[i]; p.ofNode() {
			s.configured.values[p] = p.get(s)
		}
	}
}

// Configure changes parameters of this node, all or none: the process's configuration has changed.
func (s *Server) Configure(values []Parameter) error {
	s.configured.mu.Lock()
	defer s.configured.mu.Unlock()
	changes := make([]func(*Server), len(values))
	for i, v := range values {
		var err error
		if changes[i], err = findParam([]byte(v.Name)).change(s, v.Value); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
	}
	for i, v := range values {
		changes[i](s)
		p := findParam([]byte(v.Name))
		s.configured.values[p] = p.get(s)
	}
	return nil
}

// configRewrite has the configuration file say what CONFIG SET has changed.
func configRewrite(c *session, _ *commands.Spec, _ [][]byte) {
	s := c.srv
	if s.cfg.Rewrite == nil {
		c.fail(commands.Error("ERR The server is running without a config file"))
		return
	}
	var changed []Parameter
	if err := s.cfg.Rewrite(func() []Parameter {
		changed = s.changedParameters()
		return changed
	}); err != nil {
		s.log.Error("CONFIG REWRITE failed", "error", err)
		c.fail(commands.Errorf("ERR Rewriting config file: %s", reasonOf(err)))
		return
	}
	s.configured.mu.Lock()
	for _, v := range changed {
		s.configured.values[findParam([]byte(v.Name))] = v.Value
	}
	s.configured.mu.Unlock()
	s.log.Info("CONFIG REWRITE executed with success", "changed", len(changed))
	c.w.Status("OK")
}

// changedParameters returns what CONFIG SET changed since the configuration said it, by name.
func (s *Server) changedParameters() (changed []Parameter) {
	s.configured.mu.Lock()
	defer s.configured.mu.Unlock()
	for p, old := range s.configured.values {
		if now := p.get(s); now != old {
			changed = append(changed, Parameter{p.name, now})
		}
	}
	slices.SortFunc(changed, func(a, b Parameter) int { return strings.Compare(a.Name, b.Name) })
	return changed
}
