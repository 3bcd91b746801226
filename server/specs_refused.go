// The Redis commands that coordd does not support: each is rejected with the reason and the
// alternative. docs/compatibility.md derives its list from this one. COMMAND does not show them.

package server

import (
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
)

// Refusal is the reason why some commands are not supported. docs/compatibility.md lists them all.
type Refusal struct {
	Names string // separated by spaces; a subcommand is container|subcommand
	Why   string
}

// Refusals are the Redis commands that coordd does not support.
var Refusals = []Refusal{
	{"pfdebug pfselftest", "tests of Redis's own structures; PFADD, PFCOUNT and PFMERGE are there"},
	{"module|load module|loadex module|unload",
		"modules are not deterministic across nodes; use scripts or functions"},
	{"replicaof slaveof",
		"Raft replicates; change members with RAFT ADD and RAFT REMOVE, the leader with FAILOVER"},
	{"sync psync replconf",
		"Raft replicates; a new node receives the snapshot and the log over the peer port"},
	{"restore-asking migrate",
		"slots do not move; use DUMP and RESTORE, or coordd import to copy from Redis"},
	{"cluster|addslots cluster|addslotsrange cluster|bumpepoch cluster|delslots " +
		"cluster|delslotsrange cluster|flushslots cluster|set-config-epoch cluster|setslot",
		"the leader always owns all slots"},
	{"cluster|failover cluster|replicate sentinel|failover",
		"Raft elects the leader; use FAILOVER to transfer leadership"},
	{"cluster|forget cluster|meet cluster|reset sentinel|monitor sentinel|remove sentinel|reset",
		"add nodes with --join or RAFT ADD, remove them with RAFT REMOVE, list them with RAFT " +
			"MEMBERS"},
	{"cluster|saveconfig sentinel|config sentinel|debug sentinel|flushconfig " +
		"sentinel|info-cache sentinel|pending-scripts sentinel|set sentinel|simulate-failure",
		"not applicable; configure nodes with flags or environment variables, inspect them with " +
			"INFO"},
	{"sentinel|is-master-down-by-addr",
		"internal to Sentinels; nodes elect their leader over the peer port"},
	{"debug|set-active-expire", "the log decides when keys expire, equally on all nodes"},
	{"debug|*", "unsafe or specific to Redis internals; only ERROR, SLEEP, OBJECT and HELP are " +
		"supported"},
}

// refused maps command names, or container|subcommand, to reasons.
var refused = func() map[string]string {
	byName := map[string]string{}
	for _, r := range Refusals {
		for name := range strings.FieldsSeq(r.Names) {
			byName[name] = r.Why
		}
	}
	return byName
}()

// refusedError returns the error for an unsupported command, or err if the command is simply
// unknown. It starts as the error of an unknown command: clients that probe for a command must
// find it missing.
func refusedError(args [][]byte, err error) error {
	name := ascii.Lower(args[0])
	if why, ok := refused[name]; ok {
		return commands.Errorf("ERR unknown command '%.128s': not supported by coordd: %s", args[0],
			why)
	}
	if len(args) > 1 {
		for _, sub := range []string{ascii.Lower(args[1]), "*"} {
			if why, ok := refused[name+"|"+sub]; ok {
				return commands.Errorf(
					"ERR unknown subcommand '%.128s': coordd does not support %s %.128s: %s",
					args[1], ascii.Upper(name), ascii.Upper(args[1]), why)
			}
		}
	}
	return err
}
