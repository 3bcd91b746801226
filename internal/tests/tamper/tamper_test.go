package tamper_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/tamper"
)

// Each edit at each place, however the bytes are written.
func TestEdits(t *testing.T) {
	const sent = "abcdef"
	for _, test := range []struct {
		edit tamper.Edit
		want string
	}{
		{tamper.Edit{Kind: tamper.Cut, At: 2}, "ab"},
		{tamper.Edit{Kind: tamper.Cut}, ""},
		{tamper.Edit{Kind: tamper.Cut, At: 9}, sent},
		{tamper.Edit{Kind: tamper.Insert, At: 3, Text: []byte("XY")}, "abcXYdef"},
		{tamper.Edit{Kind: tamper.Insert, Text: []byte("X")}, "Xabcdef"},
		{tamper.Edit{Kind: tamper.Overwrite, At: 1, Text: []byte("XYZ")}, "aXYZef"},
		{tamper.Edit{Kind: tamper.Overwrite, At: 5, Text: []byte("XYZ")}, "abcdeX"},
		{tamper.Edit{Kind: tamper.Drop, At: 2, Text: []byte("XYZ")}, "abf"},
	} {
		for size := 1; size <= len(sent); size++ {
			near, far := net.Pipe()
			c := tamper.New(near, test.edit, time.Minute)
			go func() {
				for rest := []byte(sent); len(rest) > 0; rest = rest[min(size, len(rest)):] {
					_, _ = c.Write(rest[:min(size, len(rest))])
				}
				_ = c.Close()
			}()
			if got, err := io.ReadAll(far); string(got) != test.want || err != nil {
				t.Errorf("%+v, %d at a time: %q %v, want %q", test.edit, size, got, err, test.want)
			}
			if want := test.edit.At < len(sent); c.Begun() != want {
				t.Errorf("%+v: begun %v", test.edit, c.Begun())
			}
		}
	}
}
