// coordd doctor: what a node has, whom it reaches, who reaches it, what it waits for, and the next
// act. It needs no leader, and not even a node that runs.

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/internal/observe"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tlsconf"
)

// doctorWait bounds the question to another member: one that does not know its users yet lets a
// password wait for 2 s.
const doctorWait = 3 * time.Second

// doctor examines the node of a configuration.
type doctor struct {
	console
	cfg            *config
	user, password string
	files          tlsconf.Files // for the nodes that serve TLS alone
	unreadable     bool          // something of the node is not this user's to read
	// the first problem of the configuration, if the data directory is the cause of all; else nil
	dir error
}

// errIll means that the next act was printed.
var errIll = errors.New("see the next act above")

func newDoctor(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Says what is wrong with a node, and the next act",
		Long: `Says what the node with these flags has, whom it reaches and who reaches it, what it waits for, and
the next act.`,
	}
	flags := cmd.Flags()
	as := addCredentials(flags, "user", "password-file", "COORDD_PASSWORD")
	cert := flags.String("user-cert", "",
		"certificate to show over TLS; default: that of the node")
	key := flags.String("user-key", "", "key of --user-cert")
	read := nodeFlags(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := read(c.getenv)
		if err != nil {
			return withUser(err)
		}
		if as.file == "" && as.user == "" { // the password that the node itself was given
			as.file = cfg.defaultPasswordFile
		}
		d := &doctor{console: c, cfg: cfg, user: as.user, files: cfg.TLS}
		if *cert != "" || *key != "" {
			d.files.Cert, d.files.Key = *cert, *key
		} else if cfg.TLSClientAuth != tls.RequireAndVerifyClientCert {
			d.files.Cert, d.files.Key = "", ""
		}
		if d.password, err = as.password(c.getenv); err != nil {
			return withUser(err)
		}
		valid := d.checkConfig()
		return d.examine(cmd.Context(), valid)
	}
	return cmd
}

// say prints a line of the examination: a mark of level, its subject, and what was found.
func (d *doctor) say(level, subject, format string, args ...any) {
	fmt.Fprintf(d.stdout, "%s %-15s %s\n", marks[level].sign, subject, fmt.Sprintf(format, args...))
}

// next prints the next act.
func (d *doctor) next(act string) { writeNext(d.stdout, act) }

// checkConfig checks what check-config does, and reports whether the node would start.
func (d *doctor) checkConfig() bool {
	var warnings bytes.Buffer
	problems := node.Check(d.cfg.Config, newLogger(&warnings, slog.LevelWarn, "text"))
	if err := d.cfg.checkOpenDoors(); err != nil {
		problems = append(problems, err)
	}
	level, found := observe.OK, "the node would start with it"
	switch {
	case len(problems) > 0:
		level, found = observe.Down, "the node would not start with it"
	case warnings.Len() > 0:
		level = observe.Warn
	}
	d.say(level, "configuration", "%s", found)
	for _, p := range problems {
		fmt.Fprintf(d.stdout, "  – %v\n", p)
		d.unreadable = d.unreadable || errors.Is(p, fs.ErrPermission)
	}
	for line := range strings.Lines(warnings.String()) {
		_, what, _ := strings.Cut(strings.TrimSpace(line), "msg=")
		fmt.Fprintf(d.stdout, "  – %s\n", what)
	}
	isOther := func(p error) bool { return nextForData(p) == "" }
	if len(problems) > 0 && !slices.ContainsFunc(problems, isOther) {
		d.dir = problems[0]
	}
	return len(problems) == 0
}

// examine asks the node that runs, or looks at the data of one that does not.
func (d *doctor) examine(ctx context.Context, valid bool) error {
	o, err := d.own()
	var s *observe.Sample
	if err == nil {
		client := d.client(o)
		defer client.Close()
		if s, err = sample(ctx, observe.NewSampler(client)); err == nil {
			return d.running(ctx, client, o.Addr, s)
		}
		err = cmp.Or(tlsRefusal(ctx, o), err)
	} else if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	says := "cannot be asked: "
	switch {
	case answered(err):
		says = o.Addr + " answers: "
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		d.say(observe.Down, "node", "does not run: %v", err)
		d.stopped(valid)
		return errIll
	case o != nil:
		says = o.Addr + " does not answer: "
	}
	d.say(observe.Down, "node", "%s%s", says, observe.Show(err.Error()))
	d.next(nextAfter(err))
	return errIll
}

const askAsItsUser = "ask as the user of the node: sudo -u coordd coordd doctor …"

// withUser says of what this user may not read who may.
func withUser(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; %s", err, askAsItsUser)
	}
	return err
}

// nextAfter returns the next act after a node did not say how it is.
func nextAfter(err error) string {
	var reply observe.ReplyError
	errors.As(err, &reply)
	switch code := reply.Code(); {
	case errors.Is(err, fs.ErrPermission):
		return askAsItsUser
	case errors.Is(err, tlsconf.ErrNotForClients), tlsconf.Alert(err):
		return "show a certificate for clients, of an authority of --tls-ca: --user-cert FILE " +
			"--user-key FILE"
	case code == "NOAUTH", code == "WRONGPASS", code == "NOPERM":
		return "say who asks: --user NAME --password-file FILE, of a user with +info, " +
			"+raft|status and +raft|members"
	case code == "DENIED":
		return "protected mode lets in this machine alone, by the loopback or a socket: have the " +
			"node listen there too, or give the default user a password"
	case strings.HasPrefix(string(reply), "ERR max number of clients"):
		return "see CLIENT LIST, as an administrator, who still gets in; have clients leave, or " +
			"raise --max-clients"
	case errors.Is(err, resp.ErrMalformed), strings.HasPrefix(string(reply), "ERR unknown"):
		return "another program has the port: stop it, or give the node another address"
	case reply != "":
		return "wait, and ask again; look in its log"
	}
	return "look at its processor, memory and disk, and in its log; start it again if it hangs"
}

// answered reports whether an error is the answer of a node, or of a program in its place.
func answered(err error) bool {
	return errors.As(err, new(observe.ReplyError)) || tlsconf.Alert(err) ||
		errors.Is(err, tlsconf.ErrNotForClients) || errors.Is(err, resp.ErrMalformed)
}

// tlsRefusal returns the alert by which a node ends the handshakes of who asks, if it does. Behind
// a question the alert may be lost: the node closes the connection before it reads that.
func tlsRefusal(ctx context.Context, o *redis.Options) error {
	if o.TLSConfig == nil {
		return nil
	}
	conn, err := dialServer(ctx, o)
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(doctorWait))
		_, err = conn.Read(make([]byte, 1))
	}
	if tlsconf.Alert(err) {
		return err
	}
	return nil
}

// own returns how to reach the node from its own machine.
func (d *doctor) own() (*redis.Options, error) {
	o := &redis.Options{Addr: d.cfg.Listen}
	switch {
	case d.cfg.UnixSocket != "":
		o.Network, o.Addr = "unix", d.cfg.UnixSocket
		return o, nil
	case d.cfg.Listen != "":
	case d.cfg.TLSListen != "":
		o.Addr = d.cfg.TLSListen
		c, err := d.files.Dial()
		if err != nil {
			return nil, err
		}
		c.InsecureSkipVerify = true // it need not name the address at which its machine asks it
		o.TLSConfig = c
	default:
		return nil, usageError{errors.New("the node serves no clients: --listen and --tls-listen " +
			"are empty")}
	}
	host, port, err := net.SplitHostPort(o.Addr)
	if err == nil && cluster.IsWildcard(host) {
		o.Addr = net.JoinHostPort("localhost", port)
	}
	return o, err
}

func (d *doctor) client(o *redis.Options) *observe.Client {
	dial := func(ctx context.Context) (net.Conn, error) { return dialServer(ctx, o) }
	return observe.NewClient(dial, d.user, d.password)
}

// running describes a node that answers, and its members.
func (d *doctor) running(ctx context.Context, client *observe.Client, addr string,
	s *observe.Sample) error {
	n := &s.Node
	d.say(observe.OK, "node", "%s answers at %s, %s, for %s", n.ID, addr, cmp.Or(n.Version, "–"),
		spanText(time.Duration(n.UptimeSec)*time.Second))
	level, state := observe.OK, n.State
	if state != "ready" {
		level = observe.Down
	}
	d.say(level, "state", "%s; %s in term %d, %d of %d entries are applied", state, n.Role, n.Term,
		n.Applied, n.Commit)
	if n.ID != d.cfg.ID && !d.cfg.AutoID {
		d.say(observe.Warn, "another node", "%s is configured here, and %s answers", d.cfg.ID, n.ID)
	}
	fmt.Fprintln(d.stdout)
	ill := d.writeMembers(ctx, client, s)
	fmt.Fprintln(d.stdout)
	besideTheLeader(s, ill)
	h := &s.Health
	d.say(h.Level, "verdict", "%s", h.Text)
	writeNext(d.stdout, h.Next)
	for _, p := range h.Problems {
		fmt.Fprintf(d.stdout, "  – %s\n", p.Text)
		writeNext(d.stdout, p.Next)
	}
	writeMissing(d.stdout, s)
	if h.Level == observe.Down {
		return errIll
	}
	return nil
}

// besideTheLeader changes a verdict that all is well, by what the leader knows, if members say of
// themselves that they are not ready.
func besideTheLeader(s *observe.Sample, ill []string) {
	if s.Health.Level == observe.OK && len(ill) > 0 {
		s.Health = observe.Health{Level: observe.Warn, Problem: observe.Problem{
			Text: "Serving, but these members are not ready, as the table says: " +
				strings.Join(ill, ", "),
			Next: "coordd doctor, on the machine of " + ill[0]}}
	}
}

// writeMembers writes the members as the node reaches them, whatever the leader says. It returns
// those that say themselves that they are not ready.
func (d *doctor) writeMembers(ctx context.Context, client *observe.Client,
	s *observe.Sample) (ill []string) {
	asking, cancel := context.WithTimeout(ctx, doctorWait)
	defer cancel()
	own, err := client.OwnMembers(asking)
	if err != nil { // if it has no list, s says so
		own = s.Members
	}
	heard, ill := d.askAll(ctx, s.Node.ID, own)
	t := newTable(d.stdout)
	fmt.Fprintf(t, "MEMBER\tROLE\tPEER PORT\t%s REACHES IT\tIT REACHES %s\tITS STATE\n", s.Node.ID,
		s.Node.ID)
	for i, m := range own {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, m.Role, m.Peer, cmp.Or(m.To, "–"),
			cmp.Or(m.From, "–"), heard[i])
	}
	_ = t.Flush()
	return ill
}

// askAll asks the members but one, at the port for clients, whom they follow. ill are those that
// are not ready.
func (d *doctor) askAll(ctx context.Context, but string,
	members []observe.Member) (said, ill []string) {
	said, ready := make([]string, len(members)), make([]bool, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if m.ID == but {
			said[i], ready[i] = "(this node)", true
			continue
		}
		wg.Go(func() { said[i], ready[i] = d.ask(ctx, m.ID, m.Client) })
	}
	wg.Wait()
	for i, m := range members {
		if !ready[i] {
			ill = append(ill, m.ID)
		}
	}
	return said, ill
}

// ask returns what a member says of itself, or why it does not. ready: not that it is not ready;
// who cannot be asked may be.
func (d *doctor) ask(ctx context.Context, id, addr string) (said string, ready bool) {
	o := &redis.Options{Addr: addr}
	if host, secure := strings.CutSuffix(addr, observe.OverTLS); secure {
		o.Addr = host
		var err error
		if o.TLSConfig, err = d.files.Dial(); err != nil {
			return observe.Show(err.Error()), true
		}
	}
	if addr == "" {
		return "its port for clients is not known", true
	}
	ctx, cancel := context.WithTimeout(ctx, doctorWait)
	defer cancel()
	client := d.client(o)
	defer client.Close()
	n, err := client.Node(ctx)
	switch {
	case err != nil:
		return observe.Show(err.Error()), true
	case n.ID != id: // configuration files are copied
		return fmt.Sprintf("%s answers at %s: give %s its own --listen or --advertise", n.ID, addr,
			id), true
	case n.Leader == "":
		return fmt.Sprintf("no leader, term %d: %s", n.Term, n.State), false
	case n.Leader == n.ID:
		said = fmt.Sprintf("leads, term %d: %s", n.Term, n.State)
	default:
		said = fmt.Sprintf("follows %s, term %d: %s", n.Leader, n.Term, n.State)
	}
	return said, n.State == "ready" || n.State == ""
}

// stopped looks at the data directory of a node that does not run.
func (d *doctor) stopped(valid bool) {
	held, err := d.data()
	switch {
	case err != nil:
		d.say(observe.Down, "data", "%v", err)
	default:
		d.say(observe.OK, "data", "of node %s, cluster %s, voters %s; log to term %d, index %d; "+
			"snapshot %d", held.Node, cmp.Or(held.Cluster, "none"), strings.Join(held.Voters, ", "),
			held.LastTerm, held.LastIndex, held.SnapshotIndex)
		if held.Owed > 0 {
			d.say(observe.Warn, "owed", "%s", held.Owing())
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission), d.unreadable:
		d.next(askAsItsUser)
	case d.dir != nil:
		d.next(nextForData(d.dir))
	case !valid:
		d.next("mend the configuration: coordd check-config says the same")
	case err != nil:
		d.next(cmp.Or(nextForData(err), "look at its disk: dmesg, SMART"))
	case slices.Contains(held.Removed, held.Node):
		d.next("it was removed from its cluster: give it an empty data directory and a new --id")
	default:
		d.next("start it: systemctl start coordd. If it ends, the last line of its log says why: " +
			"journalctl -u coordd -n 20")
	}
}

// nextForData returns the next act after a data directory was refused; empty: an error that says
// nothing about the directory.
func nextForData(err error) string {
	var dir *cluster.DirError
	switch {
	case errors.As(err, &dir):
		return dir.Next
	case errors.Is(err, cluster.ErrNoData):
		return "start it: it has no data yet. If it had, mount its volume first; if that is " +
			"lost, see operations.md, Replacing a node that lost its disk"
	case errors.Is(err, cluster.ErrInUse):
		return "look in its log: a process has the data and does not listen. It has just " +
			"started, or it hangs"
	case errors.Is(err, cluster.ErrRefetched):
		return "start it: systemctl start coordd"
	case errors.Is(err, disk.ErrDamaged):
		return "operations.md, Damaged files"
	}
	return ""
}

// data returns what the data directory holds, on which no node runs. It is an error if that does
// not fit the members that the node is started with.
func (d *doctor) data() (held cluster.Contents, err error) {
	o, _, err := openOffline(d.cfg.DataDir)
	if err != nil {
		return held, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if len(d.cfg.Join) == 0 && len(d.cfg.Discover) == 0 {
		if err := o.CheckMembers(d.cfg.Members); err != nil {
			return held, err
		}
	}
	return o.Contents()
}
