// Options that say where a node is, who its neighbors are, and where clients are sent.

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/discovery"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/server"
)

// formerPresentations are the values of --redirect, which was the name of --present-as in 0.1.
var formerPresentations = map[string]server.Presentation{
	"forward": server.PresentReplicated, "none": server.PresentStandalone,
	"moved": server.PresentCluster,
}

func setPresentAs(c *config, v string) error {
	var name string
	err := setChoice(func(*config) *string { return &name }, string(server.PresentReplicated),
		string(server.PresentStandalone), string(server.PresentCluster))(c, v)
	c.PresentAs = server.Presentation(name)
	if former, ok := formerPresentations[v]; ok {
		c.PresentAs, err = former, nil
	}
	return err
}

// setRedisVersion accepts what clients can compare.
func setRedisVersion(c *config, v string) error {
	if !redisVersion.MatchString(v) {
		return errors.New("must be three numbers, such as 7.2.0")
	}
	c.RedisVersion = v
	return nil
}

var redisVersion = regexp.MustCompile(`^\d{1,2}\.\d{1,2}\.\d{1,2}$`)

// setSentinelName accepts what Sentinel messages can carry: spaces separate their words.
func setSentinelName(c *config, v string) error {
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("must be one word")
	}
	c.SentinelName = v
	return nil
}

func setListen(c *config, v string) error {
	c.Listen, c.ListenAlso = "", nil
	if v == "" {
		return nil
	}
	for i, addr := range strings.Split(v, ",") {
		addr = strings.TrimSpace(addr)
		if err := cluster.CheckAddress(addr); err != nil {
			return err
		}
		if i == 0 {
			c.Listen = addr
		} else {
			c.ListenAlso = append(c.ListenAlso, addr)
		}
	}
	return nil
}

// maxUnixPath is what the system allows for the path of a Unix socket.
const maxUnixPath = 107

func setUnixSocket(c *config, v string) error {
	if len(v) > maxUnixPath {
		return fmt.Errorf("must not be longer than %d bytes", maxUnixPath)
	}
	c.UnixSocket = v
	return nil
}

func setUnixPerm(c *config, v string) error {
	n, err := strconv.ParseUint(v, 8, 32)
	if err != nil || n > 0o777 {
		return errors.New("must be an octal number up to 777")
	}
	c.UnixSocketPerm = os.FileMode(n)
	return nil
}

func setAddress(field func(*config) *string) func(*config, string) error {
	return func(c *config, v string) error {
		if v == "" {
			return nil
		}
		if err := cluster.CheckAddress(v); err != nil {
			return err
		}
		*field(c) = v
		return nil
	}
}

// autoID is the value of --id for which the node makes an id.
const autoID = "auto"

func setID(c *config, v string) error {
	if cluster.CheckID(v) != nil {
		return errors.New("must be 1 to 64 letters, digits, dots, dashes or underscores")
	}
	c.ID, c.AutoID = v, v == autoID
	return nil
}

func setCluster(c *config, v string) error {
	c.Members = nil
	if v == "" {
		return nil
	}
	for part := range strings.SplitSeq(v, ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return fmt.Errorf("%q is not id=host:peerport", part)
		}
		if err := setID(&config{}, id); err != nil {
			return fmt.Errorf("id %q: %w", id, err)
		}
		if err := cluster.CheckAddress(addr); err != nil {
			return fmt.Errorf("address of %s, %q: %w", id, addr, err)
		}
		for _, m := range c.Members {
			if m.ID == id || m.PeerAddr == addr {
				return fmt.Errorf("%s appears twice", part)
			}
		}
		c.Members = append(c.Members, cluster.Member{ID: id, PeerAddr: addr})
	}
	return nil
}

func setJoin(c *config, v string) error {
	c.Join = nil
	if v == "" {
		return nil
	}
	for addr := range strings.SplitSeq(v, ",") {
		addr = strings.TrimSpace(addr)
		if err := cluster.CheckAddress(strings.TrimPrefix(addr, node.TLSScheme)); err != nil {
			return fmt.Errorf("%q: %w", shown(addr), err)
		}
		c.Join = append(c.Join, addr)
	}
	return nil
}

func setDiscover(c *config, v string) (err error) {
	c.Discover = nil
	if v != "" {
		c.Discover, err = discovery.Parse(v)
	}
	return err
}

func setPriority(c *config, v string) error {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n < 1 || n > 1000 {
		return errors.New("must be an integer from 1 to 1000")
	}
	c.LeaderPriority = n
	return nil
}

// setZone accepts what INFO and the lists of members can show.
func setZone(c *config, v string) error {
	if len(v) > 64 || strings.ContainsFunc(v, func(r rune) bool {
		return r <= ' ' || r > '~' || r == ','
	}) {
		return errors.New("must be one word of up to 64 ASCII characters without commas")
	}
	c.Zone = v
	return nil
}

// completeAddresses checks the peer address and derives the address for clients.
func (c *config) completeAddresses() error {
	host, err := c.peerHost()
	if err != nil {
		return err
	}
	c.Advertise = advised(c.Advertise, c.Listen, host)
	c.TLSAdvertise = advised(c.TLSAdvertise, c.TLSListen, host)
	return nil
}

// peerHost returns the host that other nodes use to reach this one.
func (c *config) peerHost() (string, error) {
	from, addr := "--peer-advertise", c.PeerAdvertise
	if addr == "" {
		from, addr = "--peer-listen", c.PeerListen
	}
	host, port, _ := net.SplitHostPort(addr)
	switch {
	case cluster.IsWildcard(host) && from == "--peer-listen":
		return "", fmt.Errorf(
			"--peer-listen %s: other nodes cannot reach a wildcard address; set --peer-advertise",
			addr)
	case cluster.IsWildcard(host):
		return "", fmt.Errorf("%s %s: other nodes cannot reach a wildcard address", from, addr)
	case port == "0" && from == "--peer-advertise":
		return "", fmt.Errorf("--peer-advertise %s: other nodes cannot reach port 0", addr)
	}
	return host, nil
}

// completeJoin is complete for a node that joins a cluster.
func (c *config) completeJoin() error {
	flag := "--join"
	if len(c.Discover) > 0 {
		flag = "--discover"
	}
	switch {
	case len(c.Members) > 0:
		return fmt.Errorf(
			"--cluster and %s exclude each other: one founds a cluster, the other joins one", flag)
	case len(c.Join) > 0 && len(c.Discover) > 0:
		return errors.New("--join and --discover exclude each other")
	case c.PeerListen == "":
		return fmt.Errorf("%s requires --peer-listen", flag)
	}
	return c.completeAddresses()
}

// advised returns the address for clients: the one that was set, or else that of the listener with
// host in place of a wildcard.
func advised(set, listen, host string) string {
	if set != "" || listen == "" {
		return set
	}
	if h, port, _ := net.SplitHostPort(listen); cluster.IsWildcard(h) {
		return net.JoinHostPort(host, port)
	}
	return listen
}
