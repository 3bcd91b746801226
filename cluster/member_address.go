// What members say of themselves, and what operators say of them: addresses, ids and texts. They
// get into the log, into lines that clients read, and to all other members. So they are checked
// wherever they come in: a flag, RAFT ADD, a hello.

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/raft"
)

const (
	maxHostLen = 255 // DNS ends at 253
	maxWordLen = 64
	// maxConfiguration bounds the bytes of a Raft configuration, which each change of the members
	// logs: ten thousand members, with those that were removed. A member's list of all others must
	// also fit an answer of the leader.
	maxConfiguration = 1 << 20
)

// CheckAddress returns an error unless addr is host:port, with a number for the port. The host is a
// name, an IP address, or empty. Go's resolver looks up no other names.
func CheckAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("must be host:port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port must be from 0 to 65535")
	}
	ok := len(host) <= maxHostLen && !strings.ContainsFunc(host, func(r rune) bool {
		return !isWordRune(r) && r != ':' && r != '%'
	})
	if ok && strings.ContainsAny(host, ":%") { // IPv6, maybe with a zone
		_, err := netip.ParseAddr(host)
		ok = err == nil
	}
	if !ok {
		return fmt.Errorf("the host must be an IP address, or a name of up to %d letters, digits, "+
			"'.', '_' or '-'", maxHostLen)
	}
	return nil
}

// peerHost returns the host of an address at which other nodes are to reach a peer port.
func peerHost(addr string) (string, error) {
	err := CheckAddress(addr)
	host, port, _ := net.SplitHostPort(addr)
	if n, _ := strconv.Atoi(port); err == nil && (IsWildcard(host) || n == 0) {
		err = errors.New("use host:port")
	}
	if err != nil {
		return "", fmt.Errorf("other nodes cannot reach the peer address %.100q: %w", addr, err)
	}
	return host, nil
}

// shownAddress returns an address as lists of members show it. 0.1 took any for RAFT ADD.
func shownAddress(addr string) string {
	if CheckAddress(addr) != nil {
		return fmt.Sprintf("%.100q", addr)
	}
	return addr
}

// CheckID returns an error unless id is 1 to 64 letters, digits, '.', '_' or '-'.
func CheckID(id string) error {
	if id == "" || !isWord(id) {
		return fmt.Errorf("invalid node id %.100q: use 1 to %d letters, digits, '.', '_' or '-'",
			id, maxWordLen)
	}
	return nil
}

// isWord reports whether s may be an id of anything, or is empty. The register and the addresses of
// removed members are made of words, between '=', ',' and '/'.
func isWord(s string) bool {
	return len(s) <= maxWordLen &&
		!strings.ContainsFunc(s, func(r rune) bool { return !isWordRune(r) })
}

func isWordRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("._-", r)
}

// isLine reports whether s can be part of a line.
func isLine(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// check returns an error if a node cannot say this of itself.
func (h *hello) check() error {
	for _, w := range []string{h.id, h.incarnation, h.cluster, h.expects, h.to} {
		if !isWord(w) {
			return fmt.Errorf("a hello with the invalid id %.100q", w)
		}
	}
	for _, addr := range []string{h.clientAddr, h.peerAddr, h.tlsAddr} {
		if addr == "" {
			continue
		}
		if err := CheckAddress(addr); err != nil {
			return fmt.Errorf("a hello with the address %.100q: %w", addr, err)
		}
	}
	for _, text := range []string{h.refusal, h.arch, h.release, h.zone, h.build.Go,
		h.build.Processor, h.build.Commit} {
		if !isLine(text) {
			return fmt.Errorf("a hello with the text %.100q, which is not a line", text)
		}
	}
	if strings.ContainsAny(h.zone, " ,") {
		return fmt.Errorf("a hello with the zone %.100q", h.zone)
	}
	return nil
}

// checkRoom refuses a member with which the configuration would be larger than maxConfiguration. It
// shrinks by no removal: the ids of removed members stay.
func checkRoom(servers []raft.Server, more raft.Server) error {
	var c raft.Configuration
	c.Servers = append(append(c.Servers, servers...), more)
	if size := len(raft.EncodeConfiguration(c)); size > maxConfiguration {
		return refused(fmt.Sprintf("with node %s, the members and the ids of removed ones would "+
			"have %d bytes, at most %d are allowed: continue in a new cluster", more.ID, size,
			maxConfiguration))
	}
	return nil
}
