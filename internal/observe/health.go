package observe

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Levels of Health.
const (
	OK   = "ok"
	Warn = "warn" // somebody should look, the cluster serves
	Down = "down" // this node or the cluster does not serve
)

// Health says at once whether the cluster is well.
type Health struct {
	Level string `json:"level"`
	Text  string `json:"text"`
	// Problems are the others besides Text, the worst first.
	Problems []string `json:"problems"`
}

// From where a member or a resource is a problem.
const (
	silentMs     = 3000 // two reports of an idle member are a second apart
	behind       = 1000 // entries; from there /readyz reports a node as not ready
	memoryShare  = 0.9  // of maxmemory
	expiringDays = 14   // of a certificate
)

// stateDiffers is Member.State of one whose state is not the leader's.
const stateDiffers = "differs"

// health judges a sample.
func health(s *Sample, info map[string]string) Health {
	var down, warn []string
	voters, silent := 0, 0
	builds := map[string]bool{}
	for _, m := range s.Members {
		if m.Role == "voter" || m.Role == "leader" {
			voters++
		}
		if m.Build != "" {
			builds[m.Version+" "+m.Build] = true
		}
		if m.State == stateDiffers {
			warn = append(warn, "The state of "+m.ID+" is not the leader's: one of them is wrong")
		}
		switch {
		case s.Alone:
		case m.ContactMs > silentMs || m.ContactMs < 0:
			if m.Role == "voter" {
				silent++
			}
			warn = append(warn, m.ID+" does not answer the leader"+since(m.ContactMs))
		case m.Behind > behind:
			warn = append(warn, fmt.Sprintf("%s is %d entries behind", m.ID, m.Behind))
		}
	}
	switch n := &s.Node; {
	case n.Role == "removed" || n.Role == "joining":
		down = append(down, n.ID+": "+n.State)
	case n.Leader == "":
		down = append(down, "No leader: commands wait, and fail with CLUSTERDOWN")
	case n.State != "ready" && n.State != "":
		down = append(down, n.ID+" is not ready: "+n.State)
	case s.Alone:
		down = append(down, "The leader "+n.Leader+" does not answer")
	}
	if s.Alone {
		down = append(down, "The members are listed as "+s.Node.ID+" last knew them")
	}
	if quorum := voters/2 + 1; silent > 0 && voters-silent == quorum {
		warn = append(warn, "One more failure stops the cluster: "+strconv.Itoa(quorum)+" of "+
			strconv.Itoa(voters)+" voters are left")
	}
	if len(builds) > 1 {
		warn = append(warn, fmt.Sprintf("The members run %d different builds of coordd",
			len(builds)))
	}
	warn = append(warn, resources(s, info)...)
	switch {
	case len(down) > 0:
		return Health{Down, down[0], append(down[1:], warn...)}
	case len(warn) > 0:
		return Health{Warn, warn[0], warn[1:]}
	case voters == 1:
		return Health{OK, "Serving, as a single node", nil}
	}
	return Health{OK, fmt.Sprintf("All %d members are well, %s leads", len(s.Members),
		s.Node.Leader), nil}
}

// since says for how long, if that is known.
func since(ms int64) string {
	if ms < 0 {
		return ""
	}
	return " for " + (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}

// resources returns the problems of the node itself.
func resources(s *Sample, info map[string]string) (warn []string) {
	c := &s.Counts
	if c.MaxMemory > 0 && float64(c.Data) > memoryShare*float64(c.MaxMemory) {
		warn = append(warn, fmt.Sprintf("The data is at %d %% of maxmemory",
			100*c.Data/c.MaxMemory))
	}
	if info["snapshot_trouble"] != "" {
		warn = append(warn, "The newest snapshot of this node cannot be read back: its log grows")
	} else if info["rdb_last_bgsave_status"] == "err" {
		warn = append(warn, "The newest snapshot that was asked for failed")
	}
	for i := 0; ; i++ {
		line, ok := info["certificate"+strconv.Itoa(i)]
		if !ok {
			return warn
		}
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "name="), ",")
		_, days, _ := strings.Cut(rest, "days_left=")
		days, _, _ = strings.Cut(days, ",")
		if n, err := strconv.Atoi(days); err == nil && n < expiringDays {
			warn = append(warn, fmt.Sprintf("The %s certificate expires in %d days", name, n))
		}
	}
}
