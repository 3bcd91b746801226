// What the members' programs were built from. Members apply the same entries to equal states
// whatever built them; if that ever fails, the first question is what differs.

package cluster

import (
	"runtime/debug"
	"strings"
)

// Build is what a program was built from.
type Build struct {
	Go        string // version of Go
	Processor string // amd64/v1: the architecture, and the level of it that the compiler assumes
	Commit    string // empty: unknown; with + if files were changed since
}

// String returns the build in one line, empty if it is unknown.
func (b Build) String() string {
	return strings.Join(strings.Fields(b.Go+" "+b.Processor+" "+b.Commit), " ")
}

// ThisBuild returns what this program was built from.
func ThisBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{}
	}
	return buildOf(info)
}

// buildOf reads the settings of a build.
func buildOf(info *debug.BuildInfo) Build {
	b := Build{Go: info.GoVersion}
	level := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "GOARCH":
			b.Processor = s.Value
		case "GOAMD64", "GOARM64", "GOARM", "GO386", "GOPPC64", "GORISCV64", "GOMIPS", "GOMIPS64":
			level = "/" + s.Value
		case "vcs.revision":
			b.Commit = s.Value[:min(len(s.Value), commitShown)] + b.Commit
		case "vcs.modified":
			if s.Value == "true" {
				b.Commit += "+"
			}
		}
	}
	if b.Processor != "" {
		b.Processor += level
	}
	return b
}

// commitShown is how many digits of a commit are shown.
const commitShown = 12

// builds returns the different builds of this node and of the members that it is connected to, each
// with its release and one of the members.
func (n *Node) builds() map[string]string {
	all := map[string]string{buildText(n.cfg.Version, n.cfg.Build): n.cfg.ID}
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for id, l := range n.links {
		l.mu.Lock()
		if l.wire != nil {
			all[buildText(l.peer.release, l.peer.build)] = id
		}
		l.mu.Unlock()
	}
	return all
}

func buildText(release string, b Build) string {
	return strings.TrimSpace(release + " " + b.String())
}

// noteBuild warns of a member that connected with another build than this node's, once until all
// are equal again.
func (n *Node) noteBuild(member string, h hello) {
	own, its := buildText(n.cfg.Version, n.cfg.Build), buildText(h.release, h.build)
	switch {
	case len(n.builds()) == 1:
		n.mixed.Store(false)
	case own != its && !n.mixed.Swap(true):
		n.logger.Warn("members run different builds of coordd", "this-node", own, "member", member,
			"its-build", its)
	}
}
