package web

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coordd/coordd/internal/observe"
)

// Sessions are bounded, and a user who logs in again and again ends nobody's but his own.
func TestSessionsAreBounded(t *testing.T) {
	var s sessions
	s.init(false)
	client := func() *observe.Client {
		return observe.NewClient(func(context.Context) (net.Conn, error) {
			return nil, net.ErrClosed
		}, "", "")
	}
	first := httptest.NewRecorder()
	s.begin(first, "quiet", client())
	for range 2 * maxSessions {
		s.begin(httptest.NewRecorder(), "busy", client())
	}
	if len(s.all) != maxSessions {
		t.Errorf("%d sessions", len(s.all))
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range first.Result().Cookies() {
		r.AddCookie(c)
	}
	if s.of(r) == nil {
		t.Error("another user's session has ended")
	}
}
