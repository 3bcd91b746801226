// The subcommands that show a running cluster: how they reach a node, and how they print.

package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/coordd/coordd/internal/observe"
	"github.com/coordd/coordd/internal/tlsconf"
)

// observerFlags are those of the subcommands that ask a node.
type observerFlags struct {
	node  *string
	as    *credentials
	files *tlsconf.Files
}

func addObserver(fs *pflag.FlagSet) observerFlags {
	return observerFlags{
		node: fs.String("node", "127.0.0.1:6379", "any node of the cluster: host:port or "+
			"redis://host:port"),
		as:    addCredentials(fs, "user", "password-file", "COORDD_PASSWORD"),
		files: addTLS(fs),
	}
}

// client returns a client of the node, and its address. It connects when it is used.
func (f observerFlags) client(getenv func(string) string) (*observe.Client, string, error) {
	o, err := f.as.server("node", *f.node, getenv)
	if err != nil {
		return nil, "", err
	}
	if err := useTLS(f.files, o); err != nil {
		return nil, "", err
	}
	dial := func(ctx context.Context) (net.Conn, error) { return dialServer(ctx, o) }
	return observe.NewClient(dial, o.Username, o.Password), o.Addr, nil
}

// rateText shows a number a second.
func rateText(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.2f M", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1f k", n/1e3)
	case n >= 10 || n == 0:
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.1f", n)
}

// microsText shows a duration in µs; 0: unknown.
func microsText(us float64) string {
	switch {
	case us == 0:
		return "–"
	case us >= 1e6:
		return fmt.Sprintf("%.2f s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.1f ms", us/1e3)
	}
	return fmt.Sprintf("%.0f µs", us)
}

// spanText shows a duration; negative: unknown.
func spanText(d time.Duration) string {
	switch {
	case d < 0:
		return "–"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
