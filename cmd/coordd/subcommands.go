// The subcommands of coordd. Dispatch and help derive from this table.

package main

import "context"

// subcommand is what the first argument may be. Its flags describe themselves.
type subcommand struct {
	name, args, does string
	run              func(ctx context.Context, args []string, c console) error
}

// subcommands returns the table. It is a function because some subcommands print it.
func subcommands() []subcommand {
	return []subcommand{
		{"dev", "[--port PORT]",
			"runs a throwaway cluster of three nodes in one process", runDev},
		{"check-config", "[flags]",
			"checks that a node would start with these flags, the environment and the file of " +
				"--config", runCheckConfig},
		{"health", "[flags]",
			"asks the node with these flags, on its HTTP port, whether it takes commands",
			runHealth},
		{"found", "[--addr ADDR,…] [--user NAME] [--password-file FILE] " + tlsArgs,
			"founds a cluster of the empty nodes that --discover finds, once they are there, and " +
				"prints its id; also if it exists", runFound},
		{"backup", "--from ADDR,…|--data-dir DIR FILE|--to -|--to DIR|--to s3://BUCKET/PREFIX " +
			"[--force] [--every INTERVAL] [--keep N] [--user NAME] [--password-file FILE] " +
			tlsArgs +
			"; verify FILE|s3://BUCKET/PREFIX/NAME [--json]",
			"writes the state of a running cluster, or of a node that is stopped, to a file, to " +
				"standard output, or in each interval to a directory or a bucket; verify checks " +
				"that FILE can be restored, and shows what it holds", runBackup},
		{"restore", "FILE|s3://BUCKET/PREFIX/NAME [--tokens-above N] [flags]",
			"creates a node's data directory from a backup; run it for every node, with its flags",
			runRestore},
		{"recover", "--data-dir DIR [--before-entry INDEX] [--trace-entries] " +
			"[--tokens-above N] [--accept-lost-writes]",
			"after a majority is lost, or if a log entry cannot be applied: shows what DIR " +
				"holds, and makes its node the only member of a new cluster", runRecover},
		{"refetch", "--data-dir DIR",
			"if a node's snapshot cannot be read and the other members are well: sets the node's " +
				"state aside, so that it gets theirs when it is started", runRefetch},
		{"reset-default-user", "--data-dir DIR [--password-file FILE]",
			"lets an administrator who is locked out in again: at the next start of the node of " +
				"DIR, the default user gets all rights and the password", runResetDefaultUser},
		{"import", "--from ADDR[/DB] --to ADDR [--match PATTERN] [--replace] [--from-user NAME] " +
			"[--from-password-file FILE] [--to-user NAME] [--to-password-file FILE] " + tlsArgs,
			"copies keys and functions from a running Redis or Valkey into a running cluster",
			runImport},
		{"certs", "DIR [--cluster NAME] [--nodes ID,…] [--hosts HOST,…] [--clients NAME,…] " +
			"[--days N]",
			"creates certificates for trying out TLS", runCerts},
		{"top", "[--node ADDR] [--user NAME] [--password-file FILE] " + tlsArgs,
			"shows the members and the load of a node, each second; once if not on a terminal",
			runTop},
		{"members", "[--node ADDR] [--json] [--user NAME] [--password-file FILE] " + tlsArgs,
			"lists the members of the cluster, and what is wrong with it", runMembers},
		{"restart-wait", "[--node ADDR] [--timeout DURATION] [--user NAME] " +
			"[--password-file FILE] " + tlsArgs,
			"waits until a node that was restarted serves again and all voters have caught up: " +
				"then the next one may be restarted", runRestartWait},
		{"doctor", "[--user NAME] [--password-file FILE] [--user-cert FILE] [--user-key FILE] " +
			"[flags of the node]",
			"says what the node with these flags has, whom it reaches and who reaches it, what " +
				"it waits for, and the next act", runDoctor},
		{"locks", "list|show KEY|release KEY|extend KEY DURATION [--node ADDR] [--db N] " +
			"[--prefix PREFIX] [--group GROUP] [--limit N] [--token N] [--owner OWNER] [--json] " +
			"[--user NAME] " +
			"[--password-file FILE] " + tlsArgs,
			"lists locks, windows and queues, shows who holds a lock, and releases or extends one",
			runLocks},
		{"completion", "bash|zsh|fish",
			"prints a script that completes coordd's command line in a shell", runCompletion},
		{"man", "", "prints the manual page", runMan},
		{"version", "[--json]",
			"prints the version, the commit, Go's version and the feature levels", runVersion},
	}
}

const tlsArgs = "[--tls-ca FILE] [--tls-cert FILE] [--tls-key FILE]"

func findSubcommand(name string) *subcommand {
	for _, c := range subcommands() {
		if c.name == name {
			return &c
		}
	}
	return nil
}
