//go:build linux

// Kinds of clients, and single connections.

package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/resp"
)

const (
	dialLimit  = time.Second
	replyLimit = 8 * time.Second
)

// kind is how clients find a node. None of them sends a command twice by itself.
type kind struct {
	name string
	tls  bool
	make func(s *site, number int) redis.UniversalClient
}

var kinds = []kind{
	{name: "any node", make: func(s *site, number int) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: s.all[number%founding].addr, MaxRetries: -1,
			ReadTimeout: replyLimit, DialTimeout: dialLimit, DialerRetries: 1, PoolSize: 1,
			Protocol: 2})
	}},
	{name: "followers", make: func(s *site, number int) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: "a follower", Dialer: s.dialFollower(number),
			MaxRetries: -1, ReadTimeout: replyLimit, DialerRetries: 1, PoolSize: 1, Protocol: 2})
	}},
	{name: "cluster", make: func(s *site, number int) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.addrs(number),
			MaxRedirects: -1, MaxRetries: -1, ReadTimeout: replyLimit, DialTimeout: dialLimit,
			DialerRetries: 1, PoolSize: 1, Protocol: 2,
			ClusterStateReloadInterval: time.Second})
	}},
	{name: "Sentinel", make: func(s *site, number int) redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster",
			SentinelAddrs: s.addrs(number), MaxRetries: -1, ReadTimeout: replyLimit,
			DialTimeout: dialLimit, DialerRetries: 1, PoolSize: 1, Protocol: 2})
	}},
	{name: "TLS", tls: true, make: func(s *site, number int) redis.UniversalClient {
		n := s.all[number%founding]
		return redis.NewClient(&redis.Options{Addr: n.secure, Dialer: s.dialer(n, true),
			MaxRetries: -1, ReadTimeout: replyLimit, DialerRetries: 1, PoolSize: 1, Protocol: 2})
	}},
}

// addrs returns the addresses of the nodes, another one first for each number.
func (s *site) addrs(number int) []string {
	var all []string
	for i := range founding {
		all = append(all, s.all[(number+i)%founding].addr)
	}
	return all
}

// dialer returns a function that connects to a node, over TLS with the certificate of now.
func (s *site) dialer(n *node, secure bool) func(context.Context, string, string) (net.Conn,
	error) {
	return func(context.Context, string, string) (net.Conn, error) {
		d := &net.Dialer{Timeout: dialLimit}
		if !secure {
			return d.Dial("tcp", n.addr)
		}
		config, err := s.clientFiles().Dial()
		if err != nil {
			return nil, dialError(err)
		}
		conn, err := tls.DialWithDialer(d, "tcp", n.secure, config)
		if err != nil {
			return nil, dialError(err)
		}
		return conn, nil
	}
}

// dialError is an error before anything was sent.
func dialError(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// dialFollower connects to a node that does not lead, if there is one.
func (s *site) dialFollower(number int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		for i := range founding {
			n := s.all[(number+i)%founding]
			if s.role(n) == "slave" {
				return s.dialer(n, false)(ctx, "", "")
			}
		}
		return nil, dialError(errors.New("no follower answers"))
	}
}

// conn is one connection to one node, in RESP3.
type conn struct {
	net.Conn
	replies chan resp.Value
	pushes  chan resp.Value
	broken  chan struct{}
}

// pushRoom is how many messages may wait for the client.
const pushRoom = 1 << 16

// dial connects to a node.
func (s *site) dial(n *node, secure bool) (*conn, error) {
	c, err := s.dialer(n, secure)(context.Background(), "", "")
	if err != nil {
		return nil, err
	}
	k := receiver(c)
	if _, err := k.call("HELLO", "3"); err != nil {
		_ = k.Close()
		return nil, dialError(err)
	}
	return k, nil
}

// receiver starts to take what a node sends.
func receiver(c net.Conn) *conn {
	k := &conn{Conn: c, replies: make(chan resp.Value, 1), pushes: make(chan resp.Value, pushRoom),
		broken: make(chan struct{})}
	go k.receive()
	return k
}

// receive takes what the node sends until the connection ends.
func (k *conn) receive() {
	defer close(k.broken)
	r := resp.NewReader(k.Conn)
	for {
		v, err := r.Value()
		switch {
		case err != nil:
			return
		case v.Kind == resp.Push:
			k.pushes <- v
		default:
			k.replies <- v
		}
	}
}

// errBroken is what a call returns that has no reply.
var errBroken = errors.New("the connection ended")

// serverError is an error reply.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// call sends a command and returns its reply. After an error other than a reply the connection is
// of no more use.
func (k *conn) call(words ...string) (resp.Value, error) {
	if _, err := k.Write(resp.AppendCommand(nil, words...)); err != nil {
		return resp.Value{}, err
	}
	late := time.NewTimer(replyLimit)
	defer late.Stop()
	select {
	case v := <-k.replies:
		if v.IsError() {
			return v, serverError(v.Text)
		}
		return v, nil
	case <-k.broken:
		return resp.Value{}, errBroken
	case <-late.C:
		return resp.Value{}, fmt.Errorf("no reply in %v", replyLimit)
	}
}

// connect gives the client a connection of its own to a node, prepared by some commands.
func (a *actor) connect(prepare ...[]string) bool {
	if a.conn != nil {
		return true
	}
	in := a.run.site.members()
	n := in[a.seat%len(in)]
	k, err := a.run.site.dial(n, a.run.kind.tls)
	for _, words := range prepare {
		if err == nil {
			if _, err = k.call(words...); err != nil {
				_ = k.Close()
			}
		}
	}
	if err != nil {
		time.Sleep(20 * time.Millisecond) // the node may be down for long
		return false
	}
	a.conn = k
	return true
}

// disconnect ends it.
func (a *actor) disconnect() {
	if a.conn != nil {
		_ = a.conn.Close()
		a.conn = nil
	}
}
