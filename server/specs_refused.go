package server

// This file holds the commands of Redis that coordd leaves out: each is refused with a sentence that says why, and what to use
// instead. docs/compatibility.md lists the same table, which a test keeps equal. They are in no answer of COMMAND.

import (
	"strings"

	"github.com/coordd/coordd/commands"
)

// refusal is why commands are left out. A subcommand is named container|subcommand.
type refusal struct {
	names string // parted by spaces
	why   string
}

var refusals = []refusal{
	{"geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore",
		"places on a map coordinate nothing; ask a database for them"},
	{"pfadd pfcount pfdebug pfmerge pfselftest",
		"an estimate of a count coordinates nothing; a set (SADD, SCARD) or a bitmap (SETBIT, BITCOUNT) counts exactly"},
	{"lcs", "comparing texts coordinates nothing; compare them in the client"},
	{"lolwut", "it coordinates nothing; INFO server tells the version"},
	{"module|load module|loadex module|unload", "modules would have to give the same replies on every node; scripts and functions do"},
	{"replicaof slaveof", "Raft replicates: RAFT ADD and RAFT REMOVE change which nodes there are, FAILOVER moves the leadership"},
	{"sync psync replconf", "Raft replicates: a new node gets the snapshot and the log over the peer port"},
	{"dump restore restore-asking migrate", "values have no portable form here; coordd backup and coordd restore copy all of them, coordd import copies those of a Redis"},
	{"cluster|addslots cluster|addslotsrange cluster|bumpepoch cluster|delslots cluster|delslotsrange cluster|flushslots cluster|set-config-epoch cluster|setslot",
		"all slots are the leader's, always"},
	{"cluster|failover cluster|replicate sentinel|failover", "Raft elects the leader; FAILOVER hands the leadership over"},
	{"cluster|forget cluster|meet cluster|reset sentinel|monitor sentinel|remove sentinel|reset", "a node comes by --join or RAFT ADD and goes by RAFT REMOVE; RAFT MEMBERS lists them"},
	{"cluster|saveconfig cluster|slot-stats sentinel|config sentinel|debug sentinel|flushconfig sentinel|info-cache sentinel|pending-scripts sentinel|set sentinel|simulate-failure",
		"nodes keep nothing of that kind; flags and environment are the configuration, INFO tells what a node knows"},
	{"sentinel|is-master-down-by-addr", "Sentinels ask it of each other; nodes elect their leader over the peer port"},
	{"acl|setuser", "there is one user, default, who may do everything; keep others away by the network"},
	{"debug|set-active-expire", "when a key expires is decided by the log, on all nodes alike"},
	{"debug|*", "it could harm the data, or show what only Redis has inside; SLEEP, OBJECT and HELP are there"},
}

// refused finds the sentence of a command by its name, or by container|subcommand.
var refused = func() map[string]string {
	byName := map[string]string{}
	for _, r := range refusals {
		for name := range strings.FieldsSeq(r.names) {
			byName[name] = r.why
		}
	}
	return byName
}()

// refusedError is the error of a call that the table does not know, where coordd leaves the command out, else err. It begins as
// the error of an unknown command does: clients that look for a command, and do without, are to find that it is not there.
func refusedError(args [][]byte, err error) error {
	name := strings.ToLower(string(args[0]))
	if why, ok := refused[name]; ok {
		return commands.Errorf("ERR unknown command '%.128s': coordd leaves it out: %s", args[0], why)
	}
	if len(args) > 1 {
		for _, sub := range []string{strings.ToLower(string(args[1])), "*"} {
			if why, ok := refused[name+"|"+sub]; ok {
				return commands.Errorf("ERR unknown subcommand '%.128s': coordd leaves %s %.128s out: %s",
					args[1], strings.ToUpper(name), strings.ToUpper(string(args[1])), why)
			}
		}
	}
	return err
}
