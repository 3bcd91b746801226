// Health pages for supervisors and load balancers. They use what the node knows without waiting: a
// probe that waits for a busy node would get it killed for being busy.

package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/coordd/coordd/internal/tlsconf"
)

// A node further behind the leader than this is not ready: its READONLY clients see old state, and
// it could not take over soon.
const (
	readyEntries = 1000
	readyLag     = time.Second
)

// HealthHandler serves /healthz (the process runs: always 200) and /readyz (the node takes
// commands and is up to date: 200, else 503), in JSON.
func (s *Server) HealthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		status := "ok"
		if s.backend.Status().Loading {
			status = "loading"
		}
		body := map[string]any{"status": status}
		if certificates := shown(s.cfg.Certificates()); len(certificates) > 0 {
			body["certificates"] = certificates
		}
		writeJSON(w, http.StatusOK, body)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		st := s.backend.Status()
		body := map[string]any{"node": st.ID, "role": st.Role, "leader": st.LeaderID,
			"term": st.Term, "applied": st.Applied, "behind": st.Behind, "status": "ready"}
		code := http.StatusOK
		if reason, next := s.notReady(&st); reason != "" {
			code = http.StatusServiceUnavailable
			body["status"], body["reason"] = "not ready", reason
			if next != "" {
				body["next"] = next
			}
		}
		writeJSON(w, code, body)
	})
	return mux
}

// shownCertificate is what everybody may know of a certificate.
type shownCertificate struct {
	Name       string    `json:"name"`
	Expires    time.Time `json:"expires"`
	LastReload string    `json:"last_reload"` // ok or failed
}

func shown(certificates []tlsconf.Status) (all []shownCertificate) {
	for _, c := range certificates {
		all = append(all, shownCertificate{c.Name, c.Expires, c.LastReload()})
	}
	return all
}

// trouble returns what keeps the node from serving, and the operator's next act, empty for none.
func (st *Status) trouble() (why, next string) {
	switch {
	case st.NotReady != "":
		return st.NotReady, st.Next
	case !st.Ready:
		return "the node does not take commands", ""
	case st.LogTrouble != "":
		return st.LogTrouble, "make room on the disk of --data-dir, or mend it; " +
			"see operations.md, Disk space"
	}
	return "", ""
}

// notReady returns why clients should not be sent to the node, and the operator's next act, if
// there is one; empty: it is ready.
func (s *Server) notReady(st *Status) (why, next string) {
	if s.leaving.Load() || s.retired.Load() {
		return "the node is stopping", ""
	}
	if why, next = st.trouble(); why != "" {
		return why, next
	}
	const wait = "wait; if it does not catch up, look at its disk and its network"
	switch {
	case st.Loading:
		return "LOADING: the node applies what is in its log", "wait"
	case s.users() == nil:
		return "the node does not know the users yet", "wait until it has applied its log"
	case s.users() == UsersAwaited:
		return "the cluster does not have its first users yet", "upgrade all members"
	case st.Behind > readyEntries:
		return fmt.Sprintf("the node is %d entries behind the leader", st.Behind), wait
	case st.BehindFor > readyLag:
		return fmt.Sprintf("the node is %v behind the leader",
			st.BehindFor.Round(time.Millisecond)), wait
	}
	return "", ""
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}
