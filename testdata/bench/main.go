// Command bench compares a three-process coordd cluster on this machine with one redis-server that
// fsyncs every write, as a user would: redis-benchmark, lock commands, alternating servers, ratios
// of the same round.
//
//	go run ./testdata/bench [-rounds 3]
//	go run ./testdata/bench -heavy [-time 5s]
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// load is one way of running redis-benchmark, and the minimum ratio that the project wants.
type load struct {
	name     string
	clients  int
	pipeline int
	requests int
	want     float64
}

var loads = []load{
	{"1 client", 1, 1, 4000, 0.35},
	{"50 clients", 50, 1, 100000, 0.5},
	{"200 clients", 200, 1, 150000, 0.5},
	{"50 clients, pipeline 16", 50, 16, 400000, 0.5},
}

func main() {
	rounds := flag.Int("rounds", 3, "how often each load is run on each server, alternating")
	heavy := flag.Bool("heavy", false,
		"measure what a light client waits for beside 20 heavy ones instead")
	work := flag.Duration("time", 5*time.Second, "with -heavy: how long each load lasts")
	only := flag.String("only", "", "with -heavy: only the loads whose names contain this")
	flag.Parse()
	if err := run(*rounds, *heavy, *only, *work); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds int, heavy bool, only string, work time.Duration) error {
	s, err := startServers()
	if err != nil {
		return err
	}
	defer s.end()
	if heavy {
		return heavyTable(s, only, work)
	}
	return table(rounds, s.redis, s.leader, s.follower)
}

// table prints a line per load: the median rates and the median ratios of rounds.
func table(rounds int, redis, leader, follower string) error {
	fmt.Printf("SET lock:__rand_int__ owner NX PX 10000, requests a second, medians of %d rounds\n",
		rounds)
	fmt.Printf("%-26s %10s %10s %10s %8s %8s %8s\n", "", "redis", "leader", "follower", "l/redis",
		"f/redis", "wanted")
	for _, l := range loads {
		var rates [3][]float64
		var leaderRatios, followerRatios []float64
		for range rounds {
			var round [3]float64
			for i, port := range []string{redis, leader, follower} {
				rate, err := benchmark(port, l)
				if err != nil {
					return err
				}
				round[i] = rate
				rates[i] = append(rates[i], rate)
			}
			leaderRatios = append(leaderRatios, round[1]/round[0])
			followerRatios = append(followerRatios, round[2]/round[0])
		}
		fmt.Printf("%-26s %10.0f %10.0f %10.0f %8.2f %8.2f %8.2f\n", l.name, median(rates[0]),
			median(rates[1]), median(rates[2]),
			median(leaderRatios), median(followerRatios), l.want)
	}
	return nil
}

// benchmark runs redis-benchmark once and returns requests per second.
func benchmark(port string, l load) (float64, error) {
	out, err := exec.Command("redis-benchmark", "-h", "127.0.0.1", "-p", port, "-c",
		strconv.Itoa(l.clients),
		"-P", strconv.Itoa(l.pipeline), "-n", strconv.Itoa(l.requests), "-r", "1000000", "--csv",
		"SET", "lock:__rand_int__", "owner", "NX", "PX", "10000").Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) < 2 {
		return 0, fmt.Errorf("redis-benchmark printed %q", out)
	}
	return strconv.ParseFloat(rows[len(rows)-1][1], 64)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
