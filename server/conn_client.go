// CLIENT: what a connection says about itself, and what it sees of the others.

package server

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

const (
	clientFlags = commands.NoScript | commands.Loading | commands.Stale | commands.KeepsCaching
	// userDefault is the user of connections that have not authenticated.
	userDefault = "default"
)

var clientSpecs = []commands.Spec{{
	Name: "client", Kind: commands.Session, Arity: -2, Group: "connection", Since: "2.4.0",
	Summary:    "Reports about connections and changes their settings.",
	Complexity: "That of the subcommand",
	Subcommands: []commands.Spec{
		clientSub("id", 2, "5.0.0", "", "Returns the id of the connection.", true,
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.Int(s.clientID())
			}),
		clientSub("info", 2, "6.2.0", "", "Returns the properties of the connection.", false,
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.show(2)
				s.clientID()
				s.w.Verbatim("txt", s.describe(time.Now())+"\n")
			}),
		behind(ahead(shows(adminSub("list", -2, "2.4.0",
			"["+strings.Join(clientFilterSyntax, "] [")+"]", "Lists the connections of all nodes.",
			clientList)), listAhead), listBehind),
		clientSub("setname", 3, "2.6.9", "connection-name", "Sets the name of the connection.",
			true, clientSetName),
		clientSub("getname", 2, "2.6.9", "", "Returns the name of the connection.", true,
			func(s *session, _ *commands.Spec, _ [][]byte) {
				if s.name == "" {
					s.w.Null()
					return
				}
				s.w.BulkString(s.name)
			}),
		clientSub("setinfo", 4, "7.2.0", "<LIB-NAME libname | LIB-VER libver>",
			"Sets the name or the version of the client library.", true, clientSetInfo),
		clientSub("no-touch", 3, "7.2.0", "<ON | OFF>",
			"Accepts the option without effect, since commands don't record key accesses.", true,
			onOff(func(s *session, on bool) {
				s.noTouch = on
			})),
		clientSub("capa", -3, "8.0.0", "capability [capability ...]",
			"Declares what the client supports. With redirect, followers reply REDIRECT.", true,
			clientCapa),
		clientSub("leader-wait", 3, "0.2.0", "milliseconds:integer",
			"Sets how long the connection's requests wait while there is no leader, at most "+
				"--leader-wait; -1: as CONFIG SET coordd-leader-wait says.", false,
			clientLeaderWait),
		clientSub("maint_notifications", -3, "8.0.0",
			"<ON [MOVING-ENDPOINT-TYPE <internal-ip | internal-fqdn | external-ip | external-fqdn "+
				"| none>] | OFF>",
			"Notifies the client of a lost leader, and before a stop.", false,
			clientMaintNotifications),
		audited(commands.AuditArgs, adminSub("no-evict", 3, "7.0.0", "<ON | OFF>",
			"Protects the connection from being closed by maxmemory-clients.",
			onOff(func(s *session, on bool) {
				s.noEvict.Store(on)
			}))),
		clientSub("reply", 3, "3.2.0", "<ON | OFF | SKIP>",
			"Turns the replies to commands on or off.", true, clientReply),
		ahead(audited(commands.AuditArgs, adminSub("unblock", -3, "5.0.0",
			"client-id:integer [TIMEOUT | ERROR]",
			"Unblocks another connection that waits in a blocking command, of any node.",
			clientUnblock)), unblockAhead),
		audited(commands.AuditArgs, adminSub("pause", -3, "3.0.0", "timeout:integer [WRITE | ALL]",
			"Pauses all commands of this node's clients, or only writes, for some milliseconds.",
			clientPause)),
		audited(commands.AuditArgs, adminSub("unpause", 2, "6.2.0", "", "Ends a pause.",
			clientUnpause)),
		trackingSpecs[0], trackingSpecs[1], trackingSpecs[2], trackingSpecs[3],
		behind(ahead(audited(commands.AuditArgs, adminSub("kill", -3, "2.4.0",
			"<ip:port | <["+strings.Join(clientFilterSyntax, "] | [")+"] ...>>",
			"Closes connections of all nodes.", clientKill)), killAhead), killBehind),
		keepsCaching(helpSpec("CLIENT", "5.0.0", "connection", clientHelp...)),
	},
}}

var clientHelp = []string{
	"CACHING (YES|NO)",
	"    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
	"GETREDIR", "    Return the client ID we are redirecting to when tracking is enabled.",
	"GETNAME", "    Return the name of the current connection.",
	"ID", "    Return the ID of the current connection.",
	"INFO", "    Return information about the current client connection.",
	"KILL <ip:port>", "    Kill connection made from <ip:port>.",
	"KILL <option> <value> [<option> <value> [...]]", "    Kill connections. Options are:",
	"    * SKIPME (YES|NO)",
	"      Skip killing current connection (default: yes).",
	"    * and those of LIST",
	"LIST [options ...]", "    Return information about client connections. Options:",
	"    * ID <id> [<id> ...], TYPE (NORMAL|MASTER|REPLICA|PUBSUB), USER <username>,",
	"      ADDR and LADDR (<ip:port>|<unixsocket>:0), IP <ip>, NAME <name>, FLAGS <flags>,",
	"      LIB-NAME <name>, LIB-VER <version>, DB <db>, CAPA <capabilities>,",
	"      NODE <id>",
	"      Return clients to which all of these apply. With NOT- before the name: does not.",
	"    * MAXAGE <seconds>, IDLE <seconds>",
	"      Return connections that are that old or older, or have been idle for so long.",
	"UNPAUSE", "    Stop the current client pause, resuming traffic.",
	"PAUSE <timeout> [WRITE|ALL]",
	"    Suspend all, or just write, clients for <timeout> milliseconds.",
	"REPLY (ON|OFF|SKIP)", "    Control the replies sent to the current connection.",
	"SETNAME <name>", "    Assign the name <name> to the current connection.",
	"SETINFO <option> <value>", "    Set client meta attr. Options are:",
	"    * LIB-NAME: the client lib name.",
	"    * LIB-VER: the client lib version.",
	"UNBLOCK <clientid> [TIMEOUT|ERROR]", "    Unblock the specified blocked client.",
	"TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
	"         [OPTIN] [OPTOUT] [NOLOOP]",
	"    Control server assisted client side caching.",
	"TRACKINGINFO", "    Report tracking status for the current connection.",
	"LEADER-WAIT <milliseconds>",
	"    How long requests wait while there is no leader. -1: as CONFIG says.",
	"MAINT_NOTIFICATIONS (ON [MOVING-ENDPOINT-TYPE <type>]|OFF)",
	"    Notify the client before the node stops.",
	"NO-EVICT (ON|OFF)", "    Protect current client connection from eviction.",
	"NO-TOUCH (ON|OFF)", "    Will not touch LRU/LFU stats when this mode is on.",
}

// keepsCaching declares that a command leaves CLIENT CACHING in force for the next one.
func keepsCaching(spec commands.Spec) commands.Spec {
	spec.Flags |= commands.KeepsCaching
	return spec
}

func clientSub(name string, arity int, since, syntax, summary string, early bool,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Session, Arity: arity, Flags: clientFlags, Group: "connection",
		Since:  since,
		Syntax: syntax, Summary: summary, Complexity: "O(1)",
		Local: &commands.Local{Early: early, Run: serve(run)},
	}
}

func adminSub(name string, arity int, since, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Admin, Arity: arity, Flags: clientFlags, Group: "connection",
		Since:  since,
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of connections",
		Local: &commands.Local{Run: serve(run), Works: true},
	}
}

func clientSetName(s *session, _ *commands.Spec, args [][]byte) {
	if err := checkName(clientNames, args[2]); err != nil {
		s.fail(err)
		return
	}
	s.name = string(args[2])
	s.w.Status("OK")
}

func clientSetInfo(s *session, _ *commands.Spec, args [][]byte) {
	var field *string
	var option string
	switch {
	case is(args[2], "lib-name"):
		field, option = &s.libName, "lib-name"
	case is(args[2], "lib-ver"):
		field, option = &s.libVer, "lib-ver"
	default:
		s.fail(commands.Errorf("ERR Unrecognized option '%s'", resp.Shown(args[2])))
		return
	}
	if err := checkName(option, args[3]); err != nil {
		s.fail(err)
		return
	}
	*field = string(args[3])
	s.srv.maintenance.libNamed(s)
	s.w.Status("OK")
}

// onOff returns a subcommand that takes ON or OFF.
func onOff(set func(*session, bool)) func(*session, *commands.Spec, [][]byte) {
	return func(s *session, _ *commands.Spec, args [][]byte) {
		switch {
		case is(args[2], "on"):
			set(s, true)
		case is(args[2], "off"):
			set(s, false)
		default:
			s.fail(commands.ErrSyntax)
			return
		}
		s.w.Status("OK")
	}
}

// clientCapa records the client's capabilities, by Valkey's names. As there, unknown ones are
// ignored.
func clientCapa(s *session, _ *commands.Spec, args [][]byte) {
	for _, a := range args[2:] {
		if is(a, "redirect") {
			s.redirects = true
		}
	}
	s.w.Status("OK")
}

func clientLeaderWait(s *session, _ *commands.Spec, args [][]byte) {
	ms, ok := commands.ParseInt(args[2])
	if !ok || ms < -1 || ms > mostLeaderWaitMs {
		s.fail(commands.ErrNotInteger)
		return
	}
	s.leaderWaitMs = ms
	s.w.Status("OK")
}

func clientReply(s *session, _ *commands.Spec, args [][]byte) {
	switch {
	case is(args[2], "on"):
		s.muted, s.skipping = false, false
		s.w.Status("OK")
	case is(args[2], "off"):
		s.muted = true
	case is(args[2], "skip"):
		s.skipNext = !s.muted
	default:
		s.fail(commands.ErrSyntax)
	}
}

// kind reads the subscription counter, not the view: the view is updated when a command ends,
// possibly after its replies were read.
func (s *session) kind() string {
	if s.subscriptions.Load() > 0 {
		return "pubsub"
	}
	return "normal"
}

// describe returns the connection's line of CLIENT LIST, with the fields of Redis 7.0 and the
// library fields of 7.2.
func (s *session) describe(now time.Time) string {
	waiting, id := s.out.waiting(), s.srv.clientIDs.tell(s.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.view
	pieces := 0
	if waiting > 0 {
		pieces = 1
	}
	total := s.memory.bytes()
	return fmt.Sprintf(
		"id=%d addr=%s laddr=%s fd=%d name=%s age=%d idle=%d flags=%s db=%d sub=%d psub=%d "+
			"ssub=%d multi=%d "+
			"qbuf=%d qbuf-free=%d argv-mem=%d multi-mem=%d rbs=%d rbp=%d obl=0 oll=%d omem=%d "+
			"tot-mem=%d events=r cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s",
		id, s.addr, s.laddr, s.fd(), v.name, int64(now.Sub(s.created).Seconds()),
		int64(now.Sub(v.used).Seconds()), v.flags, v.db,
		v.subs[subChannel], v.subs[subPattern], v.subs[subShard], v.multi,
		v.queryBytes, v.queryFree, v.argBytes, v.multiBytes, v.replyBytes, v.replyBytes, pieces,
		waiting, total, v.last, s.userName(), v.redirect, v.proto, v.libName, v.libVer)
}

// fd returns the connection's file descriptor, -1 if it has none.
func (s *session) fd() int {
	fd := -1
	if c, ok := socket(s.conn).(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(p uintptr) { fd = int(p) })
		}
	}
	return fd
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
