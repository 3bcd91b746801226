package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// curve is how one quantity changes what servers reach.
type curve struct {
	name   string // of its files
	title  string
	x      string // the quantity
	series []series
}

// series is one server's part of a curve.
type series struct {
	name   string
	points []point
}

// point is the measurement at one value of the quantity.
type point struct {
	x       float64
	measure measurement
}

// over makes the points of a series.
func over(values []int, measure func(n int) measurement) []point {
	points := make([]point, len(values))
	for i, n := range values {
		points[i] = point{float64(n), measure(n)}
	}
	return points
}

// against makes a series for each of the servers that speak Redis's protocol.
func against(values []int, ld func(n int) load) []series {
	var list []series
	for _, server := range []struct {
		name string
		of   serverOf
	}{
		{"coordd, leader", three},
		{"coordd, follower", follower},
		{"redis, always", syncing},
		{"redis, everysec", redis("everysec")},
		{"redis, in memory", memory},
	} {
		list = append(list, series{server.name, over(values, func(n int) measurement {
			return rate(server.of, ld(n))
		})})
	}
	return list
}

var (
	clientCounts = []int{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
	depths       = []int{1, 2, 4, 8, 16, 32, 64}
	nodeCounts   = []int{1, 3, 5}
	valueSizes   = []int{16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10}
	keyCounts    = []int{1e3, 1e4, 1e5, 1e6, 1e7}
	readShares   = []int{0, 25, 50, 75, 90, 99, 100}
)

var allCurves = []curve{
	{"clients", "A lock is taken and deleted", "clients",
		append(against(clientCounts, lockAndDelete),
			series{"etcd, 3 nodes", over(clientCounts, etcdLocks)})},
	{"pipeline", "Locks are taken by 50 clients", "requests in a pipeline",
		against(depths, func(n int) load { return freshLocks(50, n) })},
	{"nodes", "Locks are taken at the leader", "nodes", []series{
		{"1 client", over(nodeCounts, locksOfNodes(1))},
		{"50 clients", over(nodeCounts, locksOfNodes(50))},
		{"200 clients", over(nodeCounts, locksOfNodes(200))},
	}},
	{"values", "Values are set by 50 clients", "bytes of a value", against(valueSizes, setValues)},
	{"keys", "Locks are taken by 50 clients, among other keys", "other keys",
		against(keyCounts, func(n int) load { return among{n, freshLocks(50, 1)} })},
	{"reads", "GET and SET by 50 clients", "reads [%]", against(readShares, mixed)},
}

func locksOfNodes(clients int) func(nodes int) measurement {
	return func(nodes int) measurement { return rate(coordd(nodes), freshLocks(clients, 1)) }
}

func setValues(size int) load {
	value := strings.Repeat("v", size)
	return closedLoop{clients: 50, pipeline: 1, request: func(client, n int) []string {
		return []string{"SET", "key:" + strconv.Itoa(client*1000+n%1000), value}
	}}
}

// mixed is a load of which a share, in percent, are reads.
func mixed(reads int) load {
	return closedLoop{clients: 50, pipeline: 1, request: func(client, n int) []string {
		key := "key:" + strconv.Itoa(client*1000+n%1000)
		if (n*61+client*37)%100 < reads { // 61 is prime to 100: each remainder comes as often
			return []string{"GET", key}
		}
		return []string{"SET", key, "value"}
	}}
}

// among is a load on a database that has other keys.
type among struct {
	keys int
	load
}

func (a among) begin(l *loop, t *target, m *meter) error {
	if err := fill(t, a.keys, manyLocks); err != nil {
		return err
	}
	return a.load.begin(l, t, m)
}

var resultsHead = []string{"x", "server", "round", "per_second", "p50_ms", "p99_ms", "p999_ms",
	"cpu_us"}

// measured is a line of the results.
type measured struct {
	server                  string
	x, rate, p50, p99, p999 float64
}

// measureCurves writes a CSV and an SVG file for each curve.
func measureCurves(s *servers, dir, only string, rounds int, work time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range allCurves {
		if !strings.Contains(c.name, only) {
			continue
		}
		if err := c.write(s, filepath.Join(dir, c.name), rounds, work); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (c *curve) write(s *servers, file string, rounds int, work time.Duration) (err error) {
	f, err := os.Create(file + ".csv")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := csv.NewWriter(f)
	if err := w.Write(resultsHead); err != nil {
		return err
	}
	results, err := c.measure(s, w, rounds, work)
	if err != nil {
		return err
	}
	return c.draw(file+".svg", results)
}

// measure measures each point on all servers before the next.
func (c *curve) measure(s *servers, w *csv.Writer, rounds int,
	work time.Duration) (all []measured, err error) {
	for i, p := range c.series[0].points {
		if !fits(c, p.x) {
			fmt.Printf("%s: %g %s do not fit into memory\n", c.name, p.x, c.x)
			continue
		}
		for _, line := range c.series {
			var lines []measured
			for round := range rounds {
				o, err := line.points[i].measure(s, work)
				if err != nil {
					return nil, fmt.Errorf("%g %s: %s: %w", p.x, c.x, line.name, err)
				}
				m := measured{line.name, p.x, o.value, milliseconds(o.wait(0.5)),
					milliseconds(o.wait(0.99)), milliseconds(o.wait(0.999))}
				lines = append(lines, m)
				if err := w.Write([]string{number(p.x), line.name,
					strconv.Itoa(round + 1), number(m.rate), number(m.p50), number(m.p99),
					number(m.p999), number(microseconds(o.cpu))}); err != nil {
					return nil, err
				}
			}
			w.Flush()
			m := medians(lines)
			all = append(all, m)
			fmt.Printf("%-10s %8g %-18s %10.0f/s  p50 %8.3f  p99 %8.3f  p99.9 %8.3f ms\n", c.name,
				m.x, m.server, m.rate, m.p50, m.p99, m.p999)
		}
	}
	return all, w.Error()
}

func medians(lines []measured) measured {
	m := lines[0]
	of := func(field func(m *measured) *float64) {
		var v []float64
		for i := range lines {
			v = append(v, *field(&lines[i]))
		}
		*field(&m) = median(v)
	}
	of(func(m *measured) *float64 { return &m.rate })
	of(func(m *measured) *float64 { return &m.p50 })
	of(func(m *measured) *float64 { return &m.p99 })
	of(func(m *measured) *float64 { return &m.p999 })
	return m
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// fits reports whether the machine has the memory for a point: three nodes and three redis-servers
// hold its keys at the same time.
func fits(c *curve, x float64) bool {
	if c.name != "keys" {
		return true
	}
	const perKey = 3*600 + 3*250
	return x*perKey < float64(availableMemory())
}
