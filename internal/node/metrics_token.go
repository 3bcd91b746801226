package node

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/coordd/coordd/internal/files"
)

const (
	maxTokens  = 64 << 10 // bytes of their file
	leastToken = 16       // bytes of one: nobody counts how often strangers guess
)

// metricsTokens are those of --metrics-token-file, one of which a scrape has to show. Several are
// for their change: Prometheus and the nodes do not change theirs at the same time.
type metricsTokens struct {
	file   string // empty: none is needed
	hashes atomic.Pointer[[][sha256.Size]byte]
}

// load reads the file. If it fails, the former tokens stay.
func (t *metricsTokens) load() error {
	if t.file == "" {
		return nil
	}
	text, err := files.Read(t.file, maxTokens)
	if err != nil {
		return fmt.Errorf("metrics token: %w", err)
	}
	var hashes [][sha256.Size]byte
	for line := range bytes.Lines(text) {
		token := bytes.TrimRight(line, "\r\n")
		if len(token) < leastToken {
			return fmt.Errorf("metrics token: %s: each line must have a token of %d characters or "+
				"more", t.file, leastToken)
		}
		hashes = append(hashes, sha256.Sum256(token))
	}
	if len(hashes) == 0 {
		return fmt.Errorf("metrics token: %s is empty", t.file)
	}
	t.hashes.Store(&hashes)
	return nil
}

// admit reports whether a request shows a token. If not, it is answered.
func (t *metricsTokens) admit(w http.ResponseWriter, r *http.Request) bool {
	if t.file == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	shown, right := sha256.Sum256([]byte(token)), 0
	for _, hash := range *t.hashes.Load() {
		right |= subtle.ConstantTimeCompare(shown[:], hash[:])
	}
	if right == 1 && strings.EqualFold(scheme, "Bearer") {
		return true
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="coordd metrics"`)
	http.Error(w, "metrics need a token, see --metrics-token-file", http.StatusUnauthorized)
	return false
}
