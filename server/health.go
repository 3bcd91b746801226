package server

// This file holds the pages for supervisors and load balancers.

import (
	"encoding/json"
	"net/http"
)

// HealthHandler answers /healthz (the process works: always 200) and /readyz (the node takes commands: 200, else 503), in JSON.
func (s *Server) HealthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		st := s.backend.Status()
		body := map[string]any{"node": st.NodeID, "role": st.Role, "leader": st.LeaderID, "term": st.Term, "applied": st.Applied}
		code := http.StatusOK
		body["status"] = "ready"
		if !st.Ready || s.retired.Load() {
			code = http.StatusServiceUnavailable
			body["status"], body["reason"] = "not ready", st.NotReady
			if s.retired.Load() {
				body["reason"] = "the node is stopping"
			}
		}
		writeJSON(w, code, body)
	})
	return mux
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone: nobody to tell
}
