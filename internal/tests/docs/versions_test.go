// What later versions of Redis added, and which of them coordd can call itself.

package docs

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// sinceRedis is what Redis 7.2 and later added: testdata/redis-since.txt.
type sinceRedis struct{ version, command, option string }

// readSince reads the table: a version with a colon, then commands, or a command with its options.
func readSince(t *testing.T) (all []sinceRedis) {
	text, err := os.ReadFile("testdata/redis-since.txt")
	if err != nil {
		t.Fatal(err)
	}
	version := ""
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		if v, is := strings.CutSuffix(line, ":"); is {
			version = v
			continue
		}
		command, added, some := strings.Cut(line, " + ")
		for option := range strings.FieldsSeq(added) {
			all = append(all, sinceRedis{version, command, option})
		}
		if !some && line != "" {
			all = append(all, sinceRedis{version: version, command: line})
		}
	}
	return all
}

// has reports whether coordd has the command, with the option if there is one.
func (o options) has(s sinceRedis) bool {
	name := strings.ToLower(strings.ReplaceAll(s.command, " ", "|"))
	words, has := o[name]
	return has && (s.option == "" || slices.Contains(words, s.option))
}

// missingSince lists what coordd lacks of each version. It fails if commands.WholeVersion is not
// the newest version of which nothing is missing; that 7.0 is whole the other parts tell.
func missingSince(t *testing.T, own options) string {
	var b strings.Builder
	b.WriteString("| Since | Missing |\n|---|---|\n")
	whole, broken := "7.0", false
	var missing []string
	all := readSince(t)
	for i, s := range all {
		if !own.has(s) {
			missing = append(missing, docName(strings.TrimSpace(s.command+" "+s.option)))
		}
		if i+1 < len(all) && all[i+1].version == s.version {
			continue
		}
		broken = broken || len(missing) > 0
		if !broken {
			whole = s.version
		}
		fmt.Fprintf(&b, "| %s | %s |\n", s.version,
			cmp.Or(strings.Join(missing, ", "), "nothing"))
		missing = missing[:0]
	}
	if !strings.HasPrefix(commands.WholeVersion, whole+".") {
		t.Errorf("commands.WholeVersion is %s, nothing is missing up to %s", commands.WholeVersion,
			whole)
	}
	return b.String()
}
