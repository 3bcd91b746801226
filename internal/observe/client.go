package observe

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/resp"
)

// maxIdle connections of a client are kept for later.
const maxIdle = 4

// limits bound a reply: CLIENT LIST of 100,000 connections fits.
var limits = resp.Limits{Line: 1 << 20, Text: 64 << 20, Elements: 1 << 20, Depth: 16}

// ReplyError is an error reply, code word first. It says what became of the command, as
// docs/guarantees.md describes under promise 4.
type ReplyError string

// Error implements error.
func (e ReplyError) Error() string { return string(e) }

// Code returns the code word.
func (e ReplyError) Code() string {
	word, _, _ := strings.Cut(string(e), " ")
	return word
}

// Denied reports whether a command failed only since its user may not run it.
func Denied(err error) bool { return hasCode(err, "NOPERM") }

// SignedOut reports whether a command failed since its user does not get in.
func SignedOut(err error) bool { return hasCode(err, "NOAUTH", "WRONGPASS", "DENIED") }

// Loads reports whether a node did not run a command since it has not caught up since its start.
func Loads(err error) bool { return hasCode(err, "LOADING") }

func hasCode(err error, codes ...string) bool {
	var reply ReplyError
	return errors.As(err, &reply) && slices.Contains(codes, reply.Code())
}

// ErrLost means that the connection ended after a command was sent: it may or may not have run.
var ErrLost = errors.New("the connection ended before the reply: the command may have run")

// Client sends commands to one node as one user. It sends nothing twice.
type Client struct {
	dial           func(ctx context.Context) (net.Conn, error)
	user, password string

	mu     lockorder.Mutex
	idle   []*conn // newest last
	closed bool
}

// NewClient returns a client that connects by dial. Without a password it does not authenticate;
// without a user, it does so as the default user.
func NewClient(dial func(ctx context.Context) (net.Conn, error), user, password string) *Client {
	return &Client{dial: dial, user: user, password: password}
}

// conn is a connection that has introduced itself.
type conn struct {
	net.Conn
	in *resp.Replies
	at time.Time // when it last authenticated
	db int
}

// authEvery is how often a connection authenticates again: the server lets one stay whose user has
// got another password, but who uses the client is out. Each is a line of the audit trail.
const authEvery = 10 * time.Second

// Do sends a command and returns its reply. An error is a ReplyError, ErrLost, or of the connection
// before the command was sent.
func (c *Client) Do(ctx context.Context, words ...string) (resp.Value, error) {
	replies, err := c.DoAll(ctx, [][]string{words})
	if err != nil {
		return resp.Value{}, err
	}
	return replies[0], replyError(replies[0])
}

// DoAll sends commands together and returns their replies, among which may be errors.
func (c *Client) DoAll(ctx context.Context, commands [][]string) ([]resp.Value, error) {
	return c.doAllIn(ctx, 0, commands)
}

// doAllIn is DoAll in a database.
func (c *Client) doAllIn(ctx context.Context, db int, commands [][]string) ([]resp.Value, error) {
	for {
		cn, used, err := c.acquire(ctx)
		if err != nil {
			return nil, err
		}
		replies, sent, err := cn.askIn(ctx, db, commands)
		switch {
		case err == nil:
			c.give(cn)
			return replies, nil
		case errors.As(err, new(ReplyError)): // turned away
			return nil, err
		case used && !sent: // the node closed it while it was idle
			continue
		case ctx.Err() != nil:
			err = ctx.Err()
		case sent:
			err = ErrLost
		}
		return nil, err
	}
}

// replyError returns the error that a reply is; nil: it is none.
func replyError(v resp.Value) error {
	if v.IsError() {
		return ReplyError(v.Text)
	}
	return nil
}

// Close closes the connections that are idle, and the others after their replies.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, cn := range c.idle {
		_ = cn.Close()
	}
	c.idle = nil
}

// acquire returns an idle connection, or a new one.
func (c *Client) acquire(ctx context.Context) (cn *conn, used bool, err error) {
	c.mu.Lock()
	for n := len(c.idle); n > 0 && cn == nil; n-- {
		cn = c.idle[n-1]
		c.idle = c.idle[:n-1]
	}
	c.mu.Unlock()
	if cn != nil && c.password != "" && time.Since(cn.at) >= authEvery {
		replies, _, err := cn.ask(ctx, [][]string{append([]string{"AUTH"}, c.login()...)})
		switch {
		case err != nil:
			cn = nil // the node closed it while it was idle
		case replies[0].IsError():
			_ = cn.Close()
			return nil, false, replyError(replies[0])
		default:
			cn.at = time.Now()
		}
	}
	if cn != nil {
		return cn, true, nil
	}
	cn, err = c.open(ctx)
	return cn, false, err
}

// login returns the user and the password.
func (c *Client) login() []string {
	if c.user == "" {
		return []string{"default", c.password}
	}
	return []string{c.user, c.password}
}

func (c *Client) give(cn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) == maxIdle {
		_ = cn.Close()
		return
	}
	c.idle = append(c.idle, cn)
}

// open connects, and authenticates if there is a password.
func (c *Client) open(ctx context.Context) (*conn, error) {
	raw, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	cn := &conn{raw, resp.NewReplies(bufio.NewReader(raw), limits), time.Now(), 0}
	hello := []string{"HELLO", "3"}
	if c.password != "" {
		hello = append(append(hello, "AUTH"), c.login()...)
	}
	// not every user may introduce his program: that error is no matter
	replies, _, err := cn.ask(ctx, [][]string{hello, {"CLIENT", "SETINFO", "LIB-NAME", "coordd"}})
	if err == nil {
		err = replyError(replies[0])
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return cn, nil
}

// askIn is ask in a database. The commands wait for the reply to SELECT: they would run in another
// database if it failed.
func (cn *conn) askIn(ctx context.Context, db int, commands [][]string) (replies []resp.Value,
	sent bool, err error) {
	if cn.db != db {
		selected, _, err := cn.ask(ctx, [][]string{{"SELECT", strconv.Itoa(db)}})
		if err != nil {
			return nil, false, err
		}
		if err := replyError(selected[0]); err != nil {
			_ = cn.Close()
			return nil, false, err
		}
		cn.db = db
	}
	return cn.ask(ctx, commands)
}

// ask sends commands and reads their replies. After an error it has closed the connection; sent is
// false if the node surely did not get all of them. A node that turns a client away says so in
// place of the first reply.
func (cn *conn) ask(ctx context.Context, commands [][]string) (replies []resp.Value, sent bool,
	err error) {
	stop := context.AfterFunc(ctx, func() { _ = cn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var b []byte
	for _, words := range commands {
		b = resp.AppendCommand(b, words...)
	}
	wrote := make(chan error, 1)
	go func() { // while the first replies are read: a pipe holds nothing
		_, err := cn.Write(b)
		wrote <- err
	}()
	for range commands {
		v, err := cn.in.Value()
		if err != nil {
			_ = cn.Close()
			if len(replies) == 1 && replies[0].IsError() {
				return nil, <-wrote == nil, ReplyError(replies[0].Text)
			}
			return nil, <-wrote == nil, err
		}
		replies = append(replies, v)
	}
	<-wrote
	return replies, true, nil
}

// fields returns the values of a map by name.
func fields(v resp.Value) map[string]resp.Value {
	m := make(map[string]resp.Value, len(v.Elems)/2)
	for pair := range slices.Chunk(v.Elems, 2) {
		if len(pair) == 2 {
			m[pair[0].Text] = pair[1]
		}
	}
	return m
}

// text returns a string without the format of a verbatim one.
func text(v resp.Value) string {
	if v.Kind == resp.Verbatim {
		return strings.TrimPrefix(v.Text, "txt:")
	}
	return v.Text
}
