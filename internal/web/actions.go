package web

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"

	"github.com/coordd/coordd/internal/observe"
)

// actRequest asks for an action.
type actRequest struct {
	Action  string `json:"action"`
	Member  string `json:"member"`
	Address string `json:"address"` // where its peer port is

	DB    int    `json:"db"`
	ID    string `json:"id"`    // names the entry
	Owner string `json:"owner"` // its OwnerID
	Token string `json:"token"`
	Ms    int64  `json:"ms"`
}

// memberActions are the commands of actions on members and on the node.
var memberActions = map[string]func(q *actRequest) []string{
	"transfer": func(q *actRequest) []string {
		return append([]string{"RAFT", "TRANSFER"}, optional(q.Member)...)
	},
	"snapshot": func(*actRequest) []string { return []string{"BGSAVE"} },
	"add": func(q *actRequest) []string {
		return []string{"RAFT", "ADD", q.Member, q.Address}
	},
	"remove":  func(q *actRequest) []string { return []string{"RAFT", "REMOVE", q.Member} },
	"promote": func(q *actRequest) []string { return []string{"RAFT", "PROMOTE", q.Member} },
}

// may returns the actions on members and on the node that a user may take.
func (p *Page) may(user string) []string {
	actions := []string{}
	for name, command := range memberActions {
		if p.cfg.May(user, command(&actRequest{Member: "n1", Address: "host:1"})...) {
			actions = append(actions, name)
		}
	}
	slices.Sort(actions)
	return actions
}

// lockActions are actions on a lock, which has the owner and the token that were shown.
var lockActions = map[string]func(ctx context.Context, c *observe.Client, q *actRequest, key,
	owner string) error{
	"release": func(ctx context.Context, c *observe.Client, q *actRequest, key,
		owner string) error {
		return c.Release(ctx, q.DB, key, owner, q.Token)
	},
	"extend": func(ctx context.Context, c *observe.Client, q *actRequest, key,
		owner string) error {
		return c.Extend(ctx, q.DB, key, owner, q.Token, q.Ms)
	},
}

func optional(word string) []string {
	if word == "" {
		return nil
	}
	return []string{word}
}

// act runs the commands of an action. The node decides whether the user may.
func act(w http.ResponseWriter, r *http.Request, s *session) {
	var q actRequest
	if !readJSON(w, r, &q) {
		return
	}
	var reply string
	var err error
	command, onMember := memberActions[q.Action]
	onLock := lockActions[q.Action]
	switch {
	case onMember:
		v, failure := s.client.Do(r.Context(), command(&q)...)
		reply, err = v.Text, failure
	case onLock != nil:
		key, keyErr := base64.RawURLEncoding.DecodeString(q.ID)
		owner, ownerErr := base64.RawURLEncoding.DecodeString(q.Owner)
		if keyErr != nil || ownerErr != nil || q.ID == "" {
			fail(w, http.StatusBadRequest, "the request names no lock")
			return
		}
		err = onLock(r.Context(), s.client, &q, string(key), string(owner))
	default:
		fail(w, http.StatusBadRequest, "there is no such action")
		return
	}
	switch {
	case errors.Is(err, observe.ErrChanged):
		fail(w, http.StatusConflict, err.Error())
	case err != nil:
		failWith(w, err)
	default:
		writeJSON(w, http.StatusOK, map[string]string{"reply": reply})
	}
}
