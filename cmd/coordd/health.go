// coordd health: asks the node of a configuration whether it takes commands, for the health checks
// of containers, which have no other program.

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/cluster"
)

// healthPatience bounds the question.
const healthPatience = 5 * time.Second

// newHealth returns the command that succeeds if /readyz of the node does.
func newHealth(c console) *cobra.Command {
	cmd := &cobra.Command{Use: "health",
		Short: "Asks the node with these flags, on its HTTP port, whether it takes commands"}
	read := nodeFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := read(c.getenv)
		if err != nil {
			return err
		}
		if cfg.HTTPListen == "" {
			return errors.New("coordd health requires the node's --http-listen")
		}
		host, port, _ := net.SplitHostPort(cfg.HTTPListen)
		if cluster.IsWildcard(host) {
			host = "localhost"
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), healthPatience)
		defer cancel()
		scheme := "http://"
		if cfg.HTTPTLS {
			scheme = "https://"
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			scheme+net.JoinHostPort(host, port)+"/readyz", nil)
		if err != nil {
			return err
		}
		// no proxy; and the certificate need not name the address at which the node asks itself
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		defer client.CloseIdleConnections()
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var body struct{ Status, Role, Reason string }
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
			return fmt.Errorf("%s is not the HTTP port of coordd: %w", cfg.HTTPListen, err)
		}
		if response.StatusCode != http.StatusOK {
			return errors.New(cmp.Or(body.Reason, response.Status))
		}
		_, err = fmt.Fprintf(c.stdout, "%s, %s\n", body.Status, body.Role)
		return err
	}
	return cmd
}
