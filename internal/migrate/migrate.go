package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config configures Run. Each database is copied to the one with the same number: To.DB is ignored,
// and so is From.DB unless OneDB is set.
type Config struct {
	From, To *redis.Options
	OneDB    bool   // only From.DB
	Match    string // glob-style pattern of keys; empty: all
	Replace  bool   // overwrite keys that the target has
	Progress func(*Report)
}

// Report counts keys and function libraries.
type Report struct {
	Total    int64            // as the source counts them
	Shard    bool             // the source is a node of a Redis Cluster, which has other keys too
	Seen     int64            // returned by SCAN, some possibly more than once
	Copied   map[string]int64 // by type
	Present  int64            // skipped: the target has them
	Vanished int64            // expired or deleted before they were read
	Failed   int64
	Failures []Failure // the first of them
	// skipped entries of consumer groups: the stream no longer has their messages
	Pending int64

	Libraries        int64 // function libraries that were copied
	LibrariesPresent int64 // skipped: the target has a library of that name
	// Key is the name; an empty one stands for all: the source did not list them
	LibraryFailures []Failure
}

// Failure is a key that was not copied. An empty key stands for a whole database.
type Failure struct {
	DB     int
	Key    string
	Reason string
}

// CopiedKeys returns the sum over all types.
func (r *Report) CopiedKeys() int64 {
	n := int64(0)
	for _, c := range r.Copied {
		n += c
	}
	return n
}

// MaxFailures limits the failures that a report lists.
const MaxFailures = 100

const (
	targetDatabases = 16

	batchKeys  = 200      // keys that are read and written together
	smallBytes = 64 << 10 // memory in the source; larger keys are copied in pieces
	ioTimeout  = 30 * time.Second
	patience   = 30 * time.Second // for a target without a leader
)

// run is a copy in progress.
type run struct {
	cfg    *Config
	report *Report
	prefix string // what temporary names in the target begin with
	names  int
	mortal map[string]bool // the kinds of which the source's elements may have a TTL

	db   int
	from *redis.Client
	to   *redis.Client
}

// Run copies until it is done, ctx ends or a server cannot be reached. In each case the report is
// correct, what was copied stays, and another run continues. A key that could not be copied is no
// error: the report lists it.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	r := &run{cfg: &cfg, mortal: map[string]bool{}, report: &Report{Copied: map[string]int64{}},
		prefix: tempPrefix + strconv.FormatInt(time.Now().UnixNano(), 36) + ":"}
	dbs, err := r.databases(ctx)
	if err != nil {
		return r.report, fmt.Errorf("reading from %s: %w", cfg.From.Addr, err)
	}
	for _, db := range dbs {
		if err := r.database(ctx, db); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return r.report, err
		}
	}
	if cfg.Match == "" && !cfg.OneDB { // the whole server
		if err := r.functions(ctx); err != nil {
			return r.report, err
		}
	}
	return r.report, nil
}

// tempPrefix begins the temporary names of large keys. Keys of a source with this prefix are not
// copied.
const tempPrefix = "coordd:import:"

// connect opens a client of one database. The client does not retry writes to the target: they may
// have run.
func connect(o *redis.Options, db, retries int) *redis.Client {
	c := *o
	c.DB, c.Protocol, c.MaxRetries = db, 2, retries
	c.ReadTimeout, c.WriteTimeout, c.DialTimeout = ioTimeout, ioTimeout, 5*time.Second
	c.DisableIdentity = true // a source may be old
	c.PoolSize = 2
	return redis.NewClient(&c)
}

// databases returns the source's databases that have keys, and counts the keys.
func (r *run) databases(ctx context.Context) ([]int, error) {
	c := connect(r.cfg.From, 0, 1)
	defer c.Close()
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	if err := r.mode(ctx, c); err != nil {
		return nil, err
	}
	for kind, m := range mortals {
		r.mortal[kind] = c.Do(ctx, m.ask, tempPrefix, m.word, 1, "x").Err() == nil
	}
	if r.cfg.OneDB {
		one := connect(r.cfg.From, r.cfg.From.DB, 1)
		defer one.Close()
		n, err := one.DBSize(ctx).Result()
		r.report.Total = n
		return r.within([]int{r.cfg.From.DB}, map[int]int64{r.cfg.From.DB: n}), err
	}
	text, err := c.Info(ctx, "keyspace").Result()
	if err != nil {
		return nil, err
	}
	var dbs []int
	keys := map[int]int64{}
	for line := range strings.Lines(text) {
		var db int
		var n int64
		if got, _ := fmt.Sscanf(line, "db%d:keys=%d", &db, &n); got == 2 {
			dbs, keys[db] = append(dbs, db), n
			r.report.Total += n
		}
	}
	return r.within(dbs, keys), nil
}

// mode finds out whether the source has all of the keys. Who may read the keys of one database need
// not be allowed to ask.
func (r *run) mode(ctx context.Context, c *redis.Client) error {
	server, err := c.Info(ctx, "server").Result()
	if err != nil && r.cfg.OneDB && isReply(err) {
		return nil
	}
	switch _, mode, _ := strings.Cut(server, "redis_mode:"); {
	case strings.HasPrefix(mode, "sentinel"):
		return errors.New("a Sentinel has no keys: name a server that it watches")
	case strings.HasPrefix(mode, "cluster"):
		r.report.Shard = !strings.Contains(c.ClusterInfo(ctx).Val(), "\ncluster_size:1\r")
	}
	return err
}

// within removes the databases that the target lacks.
func (r *run) within(dbs []int, keys map[int]int64) []int {
	return slices.DeleteFunc(dbs, func(db int) bool {
		if db < targetDatabases {
			return false
		}
		r.fail(db, "", fmt.Sprintf("%d keys not copied: coordd has %d databases", keys[db],
			targetDatabases))
		r.report.Failed += keys[db] - 1
		return true
	})
}

func (r *run) fail(db int, key, reason string) {
	r.report.Failed++
	if len(r.report.Failures) < MaxFailures {
		r.report.Failures = append(r.report.Failures, Failure{db, key, reason})
	}
}

func (r *run) progress() {
	if r.cfg.Progress != nil {
		r.cfg.Progress(r.report)
	}
}

// database copies one database.
func (r *run) database(ctx context.Context, db int) error {
	r.db, r.from, r.to = db, connect(r.cfg.From, db, 2), connect(r.cfg.To, db, -1)
	defer r.from.Close()
	defer r.to.Close()
	match := r.cfg.Match
	if match == "" {
		match = "*"
	}
	for cursor := uint64(0); ; {
		keys, next, err := r.from.Scan(ctx, cursor, match, batchKeys).Result()
		if err != nil {
			return r.sourceError(err)
		}
		keys = slices.DeleteFunc(keys, func(k string) bool {
			return strings.HasPrefix(k, tempPrefix)
		})
		r.report.Seen += int64(len(keys))
		for part := range slices.Chunk(keys, batchKeys) {
			if err := r.batch(ctx, part); err != nil {
				return err
			}
			r.progress()
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (r *run) sourceError(err error) error {
	return fmt.Errorf("reading from %s: %w", r.cfg.From.Addr, err)
}

func (r *run) targetError(err error) error {
	return fmt.Errorf("writing to %s: %w", r.cfg.To.Addr, err)
}

// item is a key to copy.
type item struct {
	key, kind string
	usage     int64     // bytes of memory in the source; -1: unknown
	deadline  time.Time // by this process's monotonic clock; zero: none
	load      [][]any   // the commands that make the key theKey
}

// leftMs returns the remaining TTL in ms, 0 without a deadline. ok is false if the key has expired.
func (i *item) leftMs() (ms int64, ok bool) {
	if i.deadline.IsZero() {
		return 0, true
	}
	ms = time.Until(i.deadline).Milliseconds()
	return ms, ms > 0
}

// describe asks the source about keys.
func (r *run) describe(ctx context.Context, keys []string) ([]*item, error) {
	pipe := r.from.Pipeline()
	kinds, lives, usages := make([]*redis.StatusCmd, len(keys)), make([]*redis.Cmd, len(keys)),
		make([]*redis.Cmd, len(keys))
	for i, k := range keys {
		kinds[i], lives[i], usages[i] = pipe.Type(ctx, k), pipe.Do(ctx, "PTTL", k),
			pipe.Do(ctx, "MEMORY", "USAGE", k)
	}
	asked := time.Now() // before the source looks: latency shortens a TTL, never extends it
	if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
		return nil, r.sourceError(err)
	}
	var items []*item
	for i, k := range keys {
		ttlMs, err := lives[i].Int64()
		if err = errors.Join(err, kinds[i].Err()); err != nil {
			r.fail(r.db, k, "the source does not return its type and TTL: "+err.Error())
			continue
		}
		it := &item{key: k, kind: kinds[i].Val(), usage: -1}
		if it.kind == "none" || ttlMs == -2 {
			r.report.Vanished++
			continue
		}
		if ttlMs >= 0 {
			it.deadline = asked.Add(time.Duration(ttlMs) * time.Millisecond)
		}
		if n, err := usages[i].Int64(); err == nil {
			it.usage = n
		}
		items = append(items, it)
	}
	return items, nil
}

// batch copies keys, the small ones together.
func (r *run) batch(ctx context.Context, keys []string) error {
	items, err := r.describe(ctx, keys)
	if err != nil {
		return err
	}
	var small, large []*item
	for _, it := range items {
		t, known := types[it.kind]
		switch {
		case !known:
			r.fail(r.db, it.key, fmt.Sprintf("coordd has no type %q", it.kind))
		case t.whole == nil, it.usage < 0, it.usage > smallBytes, r.mortal[it.kind]:
			large = append(large, it)
		default:
			small = append(small, it)
		}
	}
	small, changed, err := r.readSmall(ctx, small)
	if err != nil {
		return err
	}
	if err := r.writeSmall(ctx, small); err != nil {
		return err
	}
	for _, it := range append(large, changed...) {
		if err := r.copyLarge(ctx, it); err != nil {
			return err
		}
		r.progress()
	}
	return nil
}

// isReply reports whether an error is an error reply, and not a failure to reach the server.
func isReply(err error) bool {
	var re redis.Error
	return errors.As(err, &re)
}

// word returns the code word of an error reply.
func word(err error) string {
	w, _, _ := strings.Cut(err.Error(), " ")
	return w
}

// notNow reports whether the target did not run the command but may do so later.
func notNow(err error) bool {
	return err != nil && isReply(err) &&
		slices.Contains([]string{"CLUSTERDOWN", "TRYAGAIN", "LOADING"}, word(replyOf(err)))
}

// unknown reports whether the command may or may not have run.
func unknown(err error) bool {
	return err != nil && isReply(err) && word(replyOf(err)) == "UNKNOWN"
}

// replyOf returns the error reply inside an error.
func replyOf(err error) error {
	var re redis.Error
	if errors.As(err, &re) {
		return re
	}
	return err
}
