// Command bench compares a three-process coordd cluster on this machine with one redis-server that fsyncs every write,
// as a user would: redis-benchmark, lock commands, the two in turn, ratios of the same round.
//
//	go run ./testdata/bench [-rounds 3]
package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// load is one way of running redis-benchmark, and the ratio that the project wants at least.
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
	rounds := flag.Int("rounds", 3, "how often each load is run on each server, in turn")
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	for _, tool := range []string{"redis-server", "redis-benchmark", "redis-cli"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is needed", tool)
		}
	}
	dir, err := os.MkdirTemp("", "coordd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	var started []*exec.Cmd
	defer func() {
		cancel()
		for _, c := range started {
			_ = c.Wait()
		}
	}()
	start := func(name string, args ...string) error {
		c := exec.CommandContext(ctx, name, args...)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return err
		}
		started = append(started, c)
		return nil
	}
	ports, err := freePorts(7)
	if err != nil {
		return err
	}
	redisDir := filepath.Join(dir, "redis")
	if err := os.Mkdir(redisDir, 0o700); err != nil {
		return err
	}
	if err := start("redis-server", "--port", ports[0], "--bind", "127.0.0.1", "--dir", redisDir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning"); err != nil {
		return err
	}
	binary := filepath.Join(dir, "coordd")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/coordd").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %s", out)
	}
	members := fmt.Sprintf("n1=127.0.0.1:%s,n2=127.0.0.1:%s,n3=127.0.0.1:%s", ports[4], ports[5], ports[6])
	for i := range 3 {
		id := "n" + strconv.Itoa(i+1)
		if err := start(binary, "--id", id, "--listen", "127.0.0.1:"+ports[1+i], "--cluster", members,
			"--data-dir", filepath.Join(dir, id), "--log-level", "warn"); err != nil {
			return err
		}
	}
	leader, follower, err := findLeader(ports[1:4])
	if err != nil {
		return err
	}
	return table(rounds, ports[0], leader, follower)
}

// table prints a line a load: the median rates and the median ratios of rounds.
func table(rounds int, redis, leader, follower string) error {
	fmt.Printf("SET lock:__rand_int__ owner NX PX 10000, requests a second, medians of %d rounds\n", rounds)
	fmt.Printf("%-26s %10s %10s %10s %8s %8s %8s\n", "", "redis", "leader", "follower", "l/redis", "f/redis", "wanted")
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
		fmt.Printf("%-26s %10.0f %10.0f %10.0f %8.2f %8.2f %8.2f\n", l.name, median(rates[0]), median(rates[1]), median(rates[2]),
			median(leaderRatios), median(followerRatios), l.want)
	}
	return nil
}

// benchmark runs redis-benchmark once and returns requests a second.
func benchmark(port string, l load) (float64, error) {
	out, err := exec.Command("redis-benchmark", "-h", "127.0.0.1", "-p", port, "-c", strconv.Itoa(l.clients),
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

// findLeader waits until a node calls itself master, and gives its port and another's.
func findLeader(ports []string) (leader, follower string, err error) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		for i, p := range ports {
			if role(p) == "master" {
				return p, ports[(i+1)%len(ports)], nil
			}
		}
	}
	return "", "", errors.New("the cluster has no leader")
}

// role asks a node for the first word of ROLE; empty if it does not answer.
func role(port string) string {
	c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(c, "ROLE\r\n")
	r := bufio.NewReader(c)
	for range 2 {
		if _, err := r.ReadString('\n'); err != nil {
			return ""
		}
	}
	word, _ := r.ReadString('\n')
	return strings.TrimSpace(word)
}

// freePorts finds n ports of the loopback that nobody listens on.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}
