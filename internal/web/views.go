package web

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/coordd/coordd/internal/observe"
)

// What one view holds at most.
const (
	maxConnections = 200
	maxSlowCalls   = 64
	maxEntries     = 100 // or a step of SCAN more
)

func clients(w http.ResponseWriter, r *http.Request, s *session) {
	found, err := s.client.Connections(r.Context(), r.FormValue("word"), maxConnections)
	if err != nil {
		failWith(w, err)
		return
	}
	writeJSON(w, http.StatusOK, found)
}

func slow(w http.ResponseWriter, r *http.Request, s *session) {
	calls, err := s.client.SlowCalls(r.Context(), maxSlowCalls)
	if err != nil {
		failWith(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"calls": calls})
}

// keys returns entries of a group of kinds, by prefix.
func keys(w http.ResponseWriter, r *http.Request, s *session) {
	db, err := strconv.Atoi(cmp.Or(r.FormValue("db"), "0"))
	q := observe.Query{Group: r.FormValue("group"), DB: db, Prefix: r.FormValue("prefix"),
		Cursor: r.FormValue("cursor"), Most: maxEntries}
	if err != nil || !slices.Contains([]string{observe.Locks, observe.Windows, observe.Queues,
		observe.All}, q.Group) {
		fail(w, http.StatusBadRequest, "the request names no database or no group")
		return
	}
	found, err := s.client.Entries(r.Context(), q)
	if err != nil {
		failWith(w, err)
		return
	}
	writeJSON(w, http.StatusOK, found)
}

// lock returns a lock with its waiters and its past holders.
func lock(w http.ResponseWriter, r *http.Request, s *session) {
	db, err := strconv.Atoi(cmp.Or(r.FormValue("db"), "0"))
	key, keyErr := base64.RawURLEncoding.DecodeString(r.FormValue("id"))
	if err != nil || keyErr != nil || len(key) == 0 {
		fail(w, http.StatusBadRequest, "the request names no lock")
		return
	}
	found, err := s.client.Lock(r.Context(), db, string(key))
	switch {
	case err != nil:
		failWith(w, err)
	case found == nil:
		fail(w, http.StatusNotFound, "nobody holds this lock, and nobody is known to have")
	default:
		writeJSON(w, http.StatusOK, found)
	}
}

const (
	sampleEvery = time.Second
	// sampleWait bounds a sample: a node that takes longer is reported as not answering.
	sampleWait = 5 * time.Second
	// streamWrites bounds the sending of a sample to a browser that does not read.
	streamWrites = 5 * time.Second
)

// shownSample is a sample, and what who sees it may do.
type shownSample struct {
	*observe.Sample
	May []string `json:"may"` // names of memberActions
}

// live sends a sample each second as a server-sent event, until the browser leaves, the session
// ends or the node stops.
func (p *Page) live(w http.ResponseWriter, r *http.Request, _ *session) {
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Time{}) != nil {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep the events
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	var sampler *observe.Sampler
	for {
		s := p.sessions.of(r)
		if s == nil {
			_ = event(w, c, "ended", map[string]string{"error": "the session is over: log in"})
			return
		}
		if sampler == nil {
			sampler = observe.NewSampler(s.client)
		}
		ctx, cancel := context.WithTimeout(p.stop, sampleWait)
		sample, err := sampler.Next(ctx)
		cancel()
		name, body := "sample", any(shownSample{sample, p.may(s.user)})
		if observe.SignedOut(err) { // the user was removed, or has another password
			p.sessions.drop(r)
			continue
		}
		if err != nil {
			name, body = "failure", map[string]string{"error": err.Error()}
		}
		if event(w, c, name, body) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-p.stop.Done():
			return
		}
	}
}

// event sends a server-sent event.
func event(w http.ResponseWriter, c *http.ResponseController, name string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(streamWrites)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, text); err != nil {
		return err
	}
	return c.Flush()
}
