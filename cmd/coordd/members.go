// coordd members: the members of the cluster in a table. coordd restart-wait: whether the next node
// may be restarted.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/internal/observe"
)

func newMembers(c console) *cobra.Command {
	cmd := &cobra.Command{Use: "members",
		Short: "Lists the members of the cluster, and what is wrong with it"}
	of := addObserver(cmd.Flags())
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, _, err := of.client(c.getenv)
		if err != nil {
			return err
		}
		defer client.Close()
		s, err := sample(cmd.Context(), observe.NewSampler(client))
		switch {
		case err != nil:
			return err
		case *asJSON:
			return json.NewEncoder(c.stdout).Encode(s.Members)
		}
		writeMembers(c.stdout, s)
		writeMissing(c.stderr, s)
		if h := &s.Health; h.Level != observe.OK {
			for _, p := range append([]observe.Problem{h.Problem}, h.Problems...) {
				fmt.Fprintf(c.stderr, "coordd: %s\n", p.Text)
			}
		}
		return nil
	}
	return cmd
}

const restartWaitEvery = 500 * time.Millisecond

func newRestartWait(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restart-wait",
		Short: "Waits until the next node may be restarted",
		Long: `Waits until a node that was restarted serves again and all voters have caught up: then the next one
may be restarted.`,
	}
	of := addObserver(cmd.Flags())
	patience := cmd.Flags().Duration("timeout", 5*time.Minute,
		"give up after so long, such as 10m")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return restartWait(cmd.Context(), of, *patience, c)
	}
	return cmd
}

// restartWait waits until a node that was restarted serves again and all voters have caught up,
// so that the cluster can do without another one.
func restartWait(ctx context.Context, of observerFlags, patience time.Duration, c console) error {
	client, addr, err := of.client(c.getenv)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sampler, tick := observe.NewSampler(client), time.NewTicker(restartWaitEvery)
	defer tick.Stop()
	began := time.Now()
	for said := ""; ; {
		span := time.Since(began)
		s, err := sample(ctx, sampler)
		why := ""
		switch {
		case observe.SignedOut(err), observe.Denied(err):
			return err // it stays so
		case errors.As(err, new(observe.ReplyError)):
			why = addr + " answers: " + observe.Show(err.Error())
		case err != nil:
			why = addr + " does not answer: " + observe.Show(err.Error())
		case len(s.Members) == 0 && len(s.Denied) > 0:
			return fmt.Errorf("the user may not run %s", strings.Join(s.Denied, ", "))
		default:
			why = s.Spare(span)
		}
		if why == "" {
			_, err := fmt.Fprintf(c.stdout,
				"%s serves, and all voters have caught up: the next node may be restarted\n",
				s.Node.ID)
			return err
		}
		// one that was cut short tells less than the one before
		if cut := err != nil && ctx.Err() != nil; said == "" || !cut && why != said {
			said = why
			fmt.Fprintf(c.stderr, "coordd: waiting: %s\n", why)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up: %s; restart no other node yet", said)
		case <-tick.C:
		}
	}
}
