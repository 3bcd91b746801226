package tlsconf

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/certs"
)

// A file of authorities means all of them, or is refused: wherever it is cut off, whichever
// character is another one, and however files were put together.
func TestAuthoritiesAreAllOrAnError(t *testing.T) {
	var whole []byte
	var ends []int
	for i := range 3 {
		a, err := certs.NewAuthority(fmt.Sprint("authority ", i), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(append(whole, fmt.Sprintf("# authority %d - a comment\n", i)...), a.Cert...)
		ends = append(ends, len(whole))
	}
	known := func(text []byte) int {
		all, err := authoritiesOf(text)
		if err != nil {
			return -1
		}
		return len(all)
	}
	if got := known(whole); got != 3 {
		t.Fatalf("%d authorities", got)
	}
	for cut := range whole {
		want := -1
		for i, end := range ends {
			next := append(ends, len(whole))[i+1]
			comment := end + len("# authority 1 - a comment\n")
			if cut >= end-1 && (cut < min(comment+1, next) || i == len(ends)-1) {
				want = i + 1
			}
		}
		if got := known(whole[:cut]); got != want {
			t.Errorf("cut off at byte %d, %.40q: %d authorities, want %d", cut,
				whole[max(cut-40, 0):cut], got, want)
		}
	}
	for at, was := range whole {
		changed := bytes.Clone(whole)
		changed[at] = '*'
		inComment := bytes.HasPrefix(whole[bytes.LastIndexByte(whole[:at], '\n')+1:], []byte("#"))
		if got := known(changed); got != -1 && !(inComment && got == 3) &&
			!(was == '\n' && got == 3) {
			t.Errorf("byte %d, %q, is changed: %d authorities", at, was, got)
		}
	}
	glued := bytes.ReplaceAll(whole, []byte("-----\n#"), []byte("-----#"))
	if got := known(glued); got != -1 {
		t.Errorf("without line ends between them: %d authorities", got)
	}
	for what, text := range map[string][]byte{
		"nothing":     nil,
		"another key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}),
		"no ASN.1":    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}),
	} {
		if got := known(text); got != -1 {
			t.Errorf("%s: %d authorities", what, got)
		}
	}
}
