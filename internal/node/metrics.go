package node

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/invariant"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/locks"
	"github.com/coordd/coordd/internal/metrics"
	"github.com/coordd/coordd/server"
)

// The port may be open to anyone, and a scrape costs some milliseconds of processor time: there is
// a limit for all, and a lower one for each address, so that nobody keeps Prometheus away alone.
const (
	scrapesPerSecond = 20
	scrapesAtOnce    = 40 // that may come at once after a silence
	scrapesOfAddress = 2
	burstOfAddress   = 10
	maxScrapers      = 1024 // addresses that are told apart
)

// scrapeLimit limits scrapes.
type scrapeLimit struct {
	all *rate.Limiter

	mu lockorder.Mutex
	of map[netip.Prefix]*rate.Limiter // by address; a network of IPv6 is one
}

func newScrapeLimit() *scrapeLimit {
	return &scrapeLimit{all: rate.NewLimiter(scrapesPerSecond, scrapesAtOnce),
		of: map[netip.Prefix]*rate.Limiter{}}
}

// allow reports whether a client may scrape now.
func (l *scrapeLimit) allow(client string, now time.Time) bool {
	var from netip.Prefix
	if addr, err := netip.ParseAddrPort(client); err == nil {
		ip := addr.Addr().Unmap().WithZone("")
		bits := ip.BitLen()
		if ip.Is6() {
			bits = 64
		}
		from, _ = ip.Prefix(bits)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.of[from]
	if own == nil {
		if len(l.of) >= maxScrapers { // forgotten ones begin again, within the limit for all
			clear(l.of)
		}
		own = rate.NewLimiter(scrapesOfAddress, burstOfAddress)
		l.of[from] = own
	}
	return own.AllowN(now, 1) && l.all.AllowN(now, 1)
}

// Metrics are those of the process, and of locks and windows.
var Metrics metrics.Set

var (
	metricBuild = Metrics.Gauge("coordd_build_info", "1, with the release and what built it.",
		"version", "goversion", "processor", "commit")

	metricPanics = Metrics.Counter("coordd_internal_errors_total",
		"Requests that met a bug in coordd and got an internal error. The log shows some of them.")

	metricBroken = Metrics.Counter("coordd_invariants_broken_total",
		"What always holds, and did not: docs/testing.md lists it.", "invariant")

	metricSlowScripts = Metrics.Counter("coordd_slow_scripts_total",
		"Scripts that took far longer than their work should: those of reads were ended, those "+
			"of entries are refused (RAFT SCRIPTS).")
	metricRefusedScripts = Metrics.Gauge("coordd_refused_scripts",
		"Scripts that are refused because they held up the cluster.")

	metricAcquired = Metrics.Counter("coordd_lock_acquisitions_total",
		"Attempts to acquire a lock: granted, refused (each attempt of clients that poll).",
		"label", "result")
	metricReleased = Metrics.Counter("coordd_lock_releases_total",
		"Locks that ended: owner (given back), expiry (the lease ended first).", "label", "by")
	metricRenewed = Metrics.Counter("coordd_lock_renewals_total", "Leases extended.", "label")
	metricLate    = Metrics.Counter("coordd_lock_renewals_late_total",
		"Leases extended with less than a tenth of the time left.", "label")
	metricMissed = Metrics.Counter("coordd_lock_missed_total",
		"Releases and renewals that found the lock with another holder.", "label")
	metricTaken = Metrics.Counter("coordd_lock_taken_over_total",
		"Locks that expired while held and that another client got within a second.", "label")
	metricHold = Metrics.Histogram("coordd_lock_hold_seconds",
		"How long locks were held, until they were released or expired.", "label")
	metricWait = Metrics.Histogram("coordd_lock_wait_seconds",
		"How long clients that were refused first, or queued, waited for a lock that they got.",
		"label")
	metricBlocked = Metrics.Histogram("coordd_blocked_wait_seconds",
		"How long commands that wait for keys, such as BLPOP, waited until they found something.",
		"label")
	metricWindow = Metrics.Counter("coordd_window_requests_total",
		"Requests to rate limits: allowed, denied, counted (the client decides).", "label",
		"result")
)

var thisBuild = cluster.ThisBuild()

// metricsHandler serves /metrics.
func (n *Node) metricsHandler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		Metrics.Collector(n.giveMetrics), server.Metrics.Collector(n.server.GiveMetrics),
		cluster.Metrics.Collector(func(o metrics.Out) {
			if c := n.loaded.Load(); c != nil {
				c.GiveMetrics(o)
			}
		}))
	pages := promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, CoalesceGather: true, Timeout: webTimeout,
	})
	limit := newScrapeLimit()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !n.tokens.admit(w, req) { // before the limit, which is for those who may scrape
			return
		}
		if !limit.allow(req.RemoteAddr, time.Now()) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests for metrics", http.StatusTooManyRequests)
			return
		}
		pages.ServeHTTP(w, req)
	})
}

func (n *Node) giveMetrics(o metrics.Out) {
	o.Value(metricBuild, 1, n.cfg.Version, thisBuild.Go, thisBuild.Processor, thisBuild.Commit)
	o.Value(metricPanics, float64(n.adapter.Panics()))
	for _, r := range invariant.All() {
		o.Value(metricBroken, float64(r.Times()), r.Name)
	}
	o.Value(metricSlowScripts, float64(n.adapter.SlowScripts()))
	o.Value(metricRefusedScripts, float64(n.adapter.RefusedScripts()))
	for _, s := range n.locks.Snapshot() {
		giveLocks(o, &s)
	}
}

func giveLocks(o metrics.Out, s *locks.Stats) {
	o.Value(metricAcquired, float64(s.Granted), s.Label, "granted")
	o.Value(metricAcquired, float64(s.Refused), s.Label, "refused")
	o.Value(metricReleased, float64(s.Released), s.Label, "owner")
	o.Value(metricReleased, float64(s.Expired), s.Label, "expiry")
	o.Value(metricRenewed, float64(s.Renewed), s.Label)
	o.Value(metricLate, float64(s.RenewedLate), s.Label)
	o.Value(metricMissed, float64(s.Missed), s.Label)
	o.Value(metricTaken, float64(s.TakenOver), s.Label)
	o.Counted(metricHold, s.Held.Bounds, s.Held.Counts, s.Held.Sum, s.Label)
	o.Counted(metricWait, s.Waited.Bounds, s.Waited.Counts, s.Waited.Sum, s.Label)
	o.Counted(metricBlocked, s.Blocked.Bounds, s.Blocked.Counts, s.Blocked.Sum, s.Label)
	o.Value(metricWindow, float64(s.Allowed), s.Label, "allowed")
	o.Value(metricWindow, float64(s.Denied), s.Label, "denied")
	o.Value(metricWindow, float64(s.Counted), s.Label, "counted")
}
