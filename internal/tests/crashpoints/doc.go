// Package crashpoints runs coordd on a disk that loses power, or returns an error, at each of its
// operations in turn (internal/tests/crashdisk), and looks at what the next start makes of it.
//
// A scenario is a part of a node's life. It runs once for each operation, until it ends without
// reaching the next one. Files of the package: lab_test.go has the processes, ledger_test.go what
// was acknowledged, points_test.go the choice of operations and the report, alone_test.go the
// scenarios of single nodes, cluster_test.go those of a node among three, offline_test.go those of
// coordd's subcommands.
package crashpoints
