package web

import (
	"net/http"
)

// actRequest asks for an action.
type actRequest struct {
	Action  string `json:"action"`
	Member  string `json:"member"`
	Address string `json:"address"` // of its peer port
}

// actions are what the page can do besides showing: the commands that they are.
var actions = map[string]func(q *actRequest) []string{
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

func optional(word string) []string {
	if word == "" {
		return nil
	}
	return []string{word}
}

// act runs the command of an action. The node decides whether the user may.
func act(w http.ResponseWriter, r *http.Request, s *session) {
	var q actRequest
	if !readJSON(w, r, &q) {
		return
	}
	command := actions[q.Action]
	if command == nil {
		fail(w, http.StatusBadRequest, "there is no such action")
		return
	}
	v, err := s.client.Do(r.Context(), command(&q)...)
	if err != nil {
		failWith(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"reply": v.Text})
}
