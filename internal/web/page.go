package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"path"
	"time"

	"github.com/coordd/coordd/internal/observe"
)

//go:embed static
var static embed.FS

// Config configures a page.
type Config struct {
	NodeID   string
	Server   *Listener // accepts the page's connections
	TLS      bool      // the port speaks TLS
	Insecure bool      // accept passwords from other machines without TLS
	// Hold lets a user's request last longer than others: its connection is not closed to make
	// room for those of nobody. It returns false if too many are held; otherwise release ends it.
	Hold func(r *http.Request, user string) (release func(), ok bool)
	// May reports whether a user may run a command: the page shows no buttons for others. Empty:
	// who has logged in without a password.
	May func(user string, words ...string) bool
}

// Page is the handler of the page. Close ends its sessions.
type Page struct {
	cfg      Config
	mux      *http.ServeMux
	sessions sessions
	stop     context.Context // ends streams
	cancel   context.CancelFunc
}

// New returns a page.
func New(cfg Config) *Page {
	p := &Page{cfg: cfg, mux: http.NewServeMux()}
	p.stop, p.cancel = context.WithCancel(context.Background())
	p.sessions.init(cfg.TLS)
	p.files()
	p.mux.HandleFunc("GET /api/session", p.showSession)
	p.mux.HandleFunc("POST /api/login", p.login)
	p.mux.HandleFunc("POST /api/logout", p.logout)
	p.mux.Handle("GET /api/live", p.withSession(p.live))
	p.mux.Handle("GET /api/clients", p.withSession(clients))
	p.mux.Handle("GET /api/keys", p.withSession(keys))
	p.mux.Handle("GET /api/lock", p.withSession(lock))
	p.mux.Handle("GET /api/slow", p.withSession(slow))
	p.mux.Handle("POST /api/act", p.withSession(act))
	return p
}

// Close ends all sessions and streams.
func (p *Page) Close() {
	p.cancel()
	p.sessions.closeAll()
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	p.mux.ServeHTTP(w, r)
}

// files serves the embedded files: index.html at /, the others by their names.
func (p *Page) files() {
	dir, _ := fs.Sub(static, "static") // exists
	_ = fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, _ error) error {
		if d.IsDir() {
			return nil
		}
		content, _ := fs.ReadFile(dir, name) // in memory
		sum := sha256.Sum256(content)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		at := "GET /" + name
		if name == "index.html" {
			at = "GET /{$}"
		}
		p.mux.HandleFunc(at, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", tag)
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeContent(w, r, path.Base(name), time.Time{}, bytes.NewReader(content))
		})
		return nil
	})
}

// patience bounds a request that is not a stream: a command may wait for a leader, and an attempt
// to log in for its turn.
const patience = 20 * time.Second

// extend gives a request and its response more time than the port gives to strangers.
func (p *Page) extend(w http.ResponseWriter, r *http.Request, user string) (release func(),
	ok bool) {
	if release, ok = p.cfg.Hold(r, user); !ok {
		fail(w, http.StatusServiceUnavailable, "too many connections to the page of this node")
		return nil, false
	}
	deadline := time.Now().Add(patience)
	c := http.NewResponseController(w)
	if err := errors.Join(c.SetReadDeadline(deadline), c.SetWriteDeadline(deadline)); err != nil {
		release()
		fail(w, http.StatusInternalServerError, err.Error())
		return nil, false
	}
	return release, true
}

// sessionHandler handles a request of a session.
type sessionHandler func(w http.ResponseWriter, r *http.Request, s *session)

// withSession lets in the requests of the page in a browser that has logged in.
func (p *Page) withSession(h sessionHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := fromElsewhere(r); why != "" {
			fail(w, http.StatusForbidden, why)
			return
		}
		s := p.sessions.of(r)
		if s == nil {
			fail(w, http.StatusUnauthorized, "log in")
			return
		}
		release, ok := p.extend(w, r, userName(s.user))
		if !ok {
			return
		}
		defer release()
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		h(w, r.WithContext(ctx), s)
	})
}

// loginRequest is what a browser sends to log in. Without a user and a password it asks to be let
// in as the default user, who may not need one.
type loginRequest struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	if why := fromElsewhere(r); why != "" {
		fail(w, http.StatusForbidden, why)
		return
	}
	var q loginRequest
	if !readJSON(w, r, &q) {
		return
	}
	refuses := refusesOpen
	if q.Password != "" {
		refuses = p.refusesPassword
	}
	if why := refuses(r); why != "" {
		fail(w, http.StatusForbidden, why)
		return
	}
	release, ok := p.extend(w, r, "")
	if !ok {
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if q.Password == "" {
		q.User = "" // without one, nobody has shown to be that user
	}
	client := observe.NewClient(p.dialer(r), q.User, q.Password)
	_, err := client.Do(ctx, "PING")
	if q.Password == "" && local(r) && observe.Loads(err) {
		// nobody is known yet: the node shows its members to who is on its machine
		_, err = client.Do(ctx, "RAFT", "STATUS")
	}
	if err != nil && !observe.Denied(err) {
		client.Close()
		failWith(w, err)
		return
	}
	p.sessions.drop(r)
	p.sessions.begin(w, q.User, client)
	writeJSON(w, http.StatusOK, map[string]any{"user": userName(q.User)})
}

// dialer returns how the session that a request begins connects to the server.
func (p *Page) dialer(r *http.Request) func(context.Context) (net.Conn, error) {
	remote := remoteAddr(r)
	here, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		here = pageAddr{}
	}
	return func(ctx context.Context) (net.Conn, error) {
		return p.cfg.Server.dial(ctx, remote, here)
	}
}

// remoteAddr returns the address of a request's sender.
func remoteAddr(r *http.Request) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", r.RemoteAddr) // digits only: it asks nobody
	if err != nil {
		return &net.TCPAddr{} // from anywhere but this machine
	}
	return a
}

func userName(user string) string {
	if user == "" {
		return "default"
	}
	return user
}

func (p *Page) logout(w http.ResponseWriter, r *http.Request) {
	if why := fromElsewhere(r); why != "" {
		fail(w, http.StatusForbidden, why)
		return
	}
	p.sessions.logOut(w, r)
	writeJSON(w, http.StatusOK, map[string]any{})
}

// showSession says who has logged in, and else whether somebody may.
func (p *Page) showSession(w http.ResponseWriter, r *http.Request) {
	if why := fromElsewhere(r); why != "" {
		fail(w, http.StatusForbidden, why)
		return
	}
	body := map[string]any{"node": p.cfg.NodeID, "passwords": p.refusesPassword(r)}
	if s := p.sessions.of(r); s != nil {
		body["user"] = userName(s.user)
	}
	writeJSON(w, http.StatusOK, body)
}

// readJSON reads the body of a request. If it is none, the request is answered.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		fail(w, http.StatusBadRequest, "the request is not understood: "+err.Error())
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the browser has gone
}

func fail(w http.ResponseWriter, code int, text string) {
	writeJSON(w, code, map[string]string{"error": text})
}

// failWith answers with the error of a command, as a client gets it.
func failWith(w http.ResponseWriter, err error) {
	code := http.StatusBadGateway
	var reply observe.ReplyError
	switch {
	case errors.As(err, &reply):
		switch reply.Code() {
		case "NOAUTH", "WRONGPASS":
			code = http.StatusUnauthorized
		case "NOPERM", "DENIED":
			code = http.StatusForbidden
		case "CLUSTERDOWN", "LOADING", "TRYAGAIN", "UNKNOWN":
			code = http.StatusServiceUnavailable
		default:
			code = http.StatusConflict
		}
	case errors.Is(err, context.DeadlineExceeded):
		code, err = http.StatusGatewayTimeout, observe.ErrLost
	}
	fail(w, code, err.Error())
}
