package web

import (
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// contentPolicy lets the page load its own files and talk to its own node, nothing else, and no
// other page show it in a frame.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// setHeaders sets what every response of the page has.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// requestHeader is in every request that changes something. No other site's page can send it: the
// browser would ask this server first, which never allows it.
const requestHeader = "Coordd-Request"

// fromElsewhere returns why a request may come from a page of another site; empty: it does not.
func fromElsewhere(r *http.Request) string {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return "the request comes from another site"
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host || (u.Scheme == "https") != (r.TLS != nil) &&
			!forwarded(r) {
			return "the request comes from another origin"
		}
	}
	if r.Method == http.MethodPost {
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if r.Header.Get(requestHeader) == "" || kind != "application/json" {
			return "the request does not come from the page: it lacks the header " + requestHeader
		}
	}
	return ""
}

// forwarded reports whether a proxy has passed a request on.
func forwarded(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip",
		"Via"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}

// namedByAddress reports whether the browser reached the node by an IP address, or as localhost. A
// name may be another site's, which now resolves to the node (DNS rebinding): the browser then
// takes that site's page for ours.
func namedByAddress(r *http.Request) bool {
	host := hostOf(r)
	return strings.EqualFold(host, "localhost") || net.ParseIP(host) != nil
}

// proxied reports whether a proxy on this machine has passed a request on, and says so in no
// header: what comes over the loopback was asked of another address.
func proxied(r *http.Request) bool {
	ip := net.ParseIP(hostOf(r))
	return local(r) && ip != nil && !ip.IsLoopback()
}

// hostOf returns the name or the address by which the browser knows the node.
func hostOf(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// local reports whether a request comes from this machine.
func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// refusesPassword returns why a password may not be sent with a request; empty: it may.
func (p *Page) refusesPassword(r *http.Request) string {
	if r.TLS != nil || p.cfg.Insecure || local(r) {
		return ""
	}
	return "A password does not cross the network in plain text. Start the node with --http-tls, " +
		"reach this port through an SSH tunnel or a proxy on its machine, or accept plain text " +
		"with --insecure-http."
}

// refusesOpen returns why a request gets no session without a password, whatever the server says;
// empty: nothing forbids it.
func refusesOpen(r *http.Request) string {
	switch {
	case forwarded(r), proxied(r):
		return "Behind a proxy the page requires a password: everybody seems to be on the " +
			"proxy's machine."
	case !namedByAddress(r):
		return "Without a password, the page is only shown under an IP address or localhost, " +
			"not under a name: other sites could use the name to reach the node."
	}
	return ""
}
