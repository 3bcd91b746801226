// coordd found: tells the empty nodes that discover each other to found a cluster.

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/coordd/coordd/internal/resp"
)

const (
	foundEvery    = time.Second
	foundPatience = time.Minute // for one reply: the node looks around, and waits for the others
)

func newFound(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "found",
		Short: "Founds a cluster of the empty nodes that --discover finds",
		Long: `Founds a cluster of the empty nodes that --discover finds, once they are there, and prints its id;
also if it exists.`,
	}
	flags := cmd.Flags()
	addr := flags.String("addr", "127.0.0.1:6379", "one of the empty nodes: host:port or "+
		"redis://host:port; or several, with commas: they are asked in turn")
	as := addCredentials(flags, "user", "password-file", "COORDD_PASSWORD")
	files := addTLS(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		nodes, err := as.servers("addr", *addr, c.getenv)
		if err != nil {
			return err
		}
		if err := useTLS(files, nodes...); err != nil {
			return err
		}
		return found(cmd.Context(), nodes, c)
	}
	return cmd
}

// found asks the nodes in turn until the cluster exists, and prints its id.
func found(ctx context.Context, nodes []*redis.Options, c console) error {
	for told := ""; ; {
		for _, o := range nodes {
			cluster, err := askToFound(ctx, o)
			if err == nil {
				fmt.Fprintln(c.stdout, cluster)
				return nil
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if isFinal(err) {
				return fmt.Errorf("%s: %w", o.Addr, err)
			}
			if why := fmt.Sprintf("%s: %v", o.Addr, err); why != told {
				told = why
				fmt.Fprintf(c.stderr, "waiting: %s\n", why)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(foundEvery):
		}
	}
}

// refusal is the error reply of a node.
type refusal string

// Error returns the reply.
func (r refusal) Error() string { return string(r) }

// isFinal reports whether asking again does not help.
func isFinal(err error) bool {
	var r refusal
	if !errors.As(err, &r) {
		return false
	}
	switch word, _, _ := strings.Cut(string(r), " "); word {
	case "LOADING", "CLUSTERDOWN", "TRYAGAIN", "UNKNOWN":
		return false
	}
	return true
}

// askToFound asks a node once. One that knows no users yet wants the password in the command, and
// one with a cluster before it.
func askToFound(ctx context.Context, o *redis.Options) (cluster string, err error) {
	conn, err := dialServer(ctx, o)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(foundPatience)); err != nil {
		return "", err
	}
	in := resp.NewReplies(bufio.NewReader(conn), resp.DefaultLimits)
	call := func(words ...string) (string, error) {
		if _, err := conn.Write(resp.AppendCommand(nil, words...)); err != nil {
			return "", err
		}
		head, err := in.Head()
		switch {
		case err != nil:
			return "", err
		case head.IsError():
			return "", refusal(head.Text)
		case head.Kind == resp.Status:
			return string(head.Text), nil
		case head.Kind != resp.Bulk:
			return "", fmt.Errorf("%s is not a coordd node: unexpected reply", o.Addr)
		}
		text, err := io.ReadAll(in.Text(head))
		return string(text), err
	}
	words := []string{"RAFT", "FOUND"}
	if o.Password == "" {
		return call(words...)
	}
	as := []string{"AUTH", cmp.Or(o.Username, "default"), o.Password}
	cluster, err = call(append(words, as...)...)
	if err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
		if _, err = call(as...); err == nil {
			cluster, err = call(words...)
		}
	}
	return cluster, err
}
