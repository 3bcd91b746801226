// The scripts of testdata/scripts run here and on a real redis-server, and the replies are
// compared.

package script

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/corpus"
)

// testdata is the path of the repository's testdata.
const testdata = "../../testdata"

func TestScriptsLikeRedis(t *testing.T) {
	socket := commandtest.NeedRedis(t)
	for _, path := range corpus.Files(t, testdata) {
		scripts := corpus.Read(t, path)
		for _, proto := range []string{"2", "3"} {
			t.Run(filepath.Base(path)+"/resp"+proto, func(t *testing.T) {
				real, err := commandtest.Dial("unix", socket)
				if err != nil {
					t.Fatal(err)
				}
				defer real.Close()
				here := newNode()
				for _, call := range [][]string{{"FLUSHALL"}, {"HELLO", proto}} {
					if _, err := real.Do(commandtest.Args(call...)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := here.Do(commandtest.Args("HELLO", proto)); err != nil {
					t.Fatal(err)
				}
				for _, s := range scripts {
					args := commandtest.Args(append([]string{"EVAL", s.Source}, s.Args...)...)
					want, err := real.Do(args)
					if err != nil {
						t.Fatalf("%s: redis-server: %v", s.Source, err)
					}
					got, err := here.Do(args)
					if err != nil {
						t.Fatalf("%s: %v", s.Source, err)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%s\n  redis  %q\n  coordd %q", s.Source, want, got)
					}
				}
			})
		}
	}
}
