package main

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// goSuite is the suite of a package of a Go module.
type goSuite struct {
	name, module string
	dir          string // of the package in the module
	ports        string // that its tests expect servers on: an expression; they are replaced
	args         []string
	ginkgo       bool // its tests are in one of Ginkgo
	env          []string
	flags        []string // of the nodes
	local        []string // modules that it replaces by directories
}

var (
	goRedisSuite = goSuite{name: "go-redis", module: "github.com/redis/go-redis/v9@v9.23.0",
		ports: "6379", ginkgo: true,
		args: []string{"-run", "^TestGinkgoSuite$", "-ginkgo.skip=" + goRedisOut},
		// As on a single server of an enterprise, so that they need no Sentinel, ring or cluster,
		// whose processes they would have to start.
		env: []string{"RE_CLUSTER=true", "REDIS_VERSION=7.4"}}.suite()
	redisRateSuite = goSuite{name: "redis_rate",
		module: "github.com/go-redis/redis_rate/v10@v10.0.1", ports: "6379"}.suite()
	redislockSuite = goSuite{name: "redislock", module: "github.com/bsm/redislock@v0.9.4",
		ports: "6379"}.suite()
	asynqSuite = goSuite{name: "asynq", module: "github.com/hibiken/asynq@v0.26.0",
		args: []string{"-args", "-redis_addr=127.0.0.1:PORT"}}.suite()
	asynqRDBSuite = goSuite{name: "asynq-rdb", module: "github.com/hibiken/asynq@v0.26.0",
		dir: "internal/rdb", args: []string{"-args", "-redis_addr=127.0.0.1:PORT"}}.suite()
	// Its tests of one server; the others are of its own stand-in, or need processes of Sentinel
	// and clusters. They are of a client of a single server: one of a cluster asks any node for
	// CLIENT ID.
	rueidisSuite = goSuite{name: "rueidis", module: "github.com/redis/rueidis@v1.0.79",
		ports: "6379", args: []string{"-run", "^TestSingleClientIntegration$|" +
			"^TestUnblockOnCancel|^TestNegative"},
		flags: []string{"--present-as", "standalone"}}.suite()
	rueidiscompatSuite = goSuite{name: "rueidiscompat",
		module: "github.com/redis/rueidis/rueidiscompat@v1.0.79", ginkgo: true,
		ports: "6378|6382|6356|6381|7010|7007",
		args:  []string{"-run", "^TestAdapter$", "-ginkgo.skip=" + rueidiscompatOut},
		local: []string{"github.com/redis/rueidis", "github.com/redis/rueidis/mock"},
		flags: []string{"--present-as", "standalone"}}.suite()
	radixSuite = goSuite{name: "radix", module: "github.com/mediocregopher/radix/v4@v4.1.4",
		ports: "6379"}.suite()
	miniredisSuite = goSuite{name: "miniredis", module: "github.com/alicebob/miniredis/v2@v2.40.0",
		dir: "integration", env: []string{"INT=1"}}.startsServers(oneNode)
	redigoSuite = goSuite{name: "redigo", module: "github.com/gomodule/redigo@v1.9.3",
		dir: "redis"}.startsServers()
	redsyncSuite = goSuite{name: "redsync",
		module: "github.com/go-redsync/redsync/v4@v4.18.1"}.startsServers(oneNode)
)

// goRedisOut are specifications of modules of Redis, of clients of Sentinel, rings and clusters of
// Redis's own processes, with files of go-redis's containers, and of a server at the default port.
const goRedisOut = "RediSearch|FT.HYBRID|RedisTimeseries|JSON Commands|Probabilistic|vectorset|" +
	"ClusterClient|Command Tips|cluster races|Sentinel|Redis Ring|Ring (watch|Tx|Publish)|" +
	"UniversalClient|TLS (Cluster|Standalone|TLS)|Credentials Provider|withConn"

// rueidiscompatOut are specifications of modules of Redis, and of commands of its enterprise.
const rueidiscompatOut = "should (BF|CF|CMS|TopK|TDigest|TS|FT|JSON|V[A-Z])|JSONCmdable|" +
	"Gears|RediSearch|Timeseries|TFunction|TFCall|specific options|IDMP|idempotent"

func (g goSuite) suite() suite {
	_, version, _ := strings.Cut(g.module, "@")
	fetch := func(ctx context.Context, dir string) (string, []string, error) {
		return version, []string{"tests"}, g.fetch(ctx, filepath.Join(dir, "source"))
	}
	return suite{name: g.name, fetch: fetch, test: g.test, flags: g.flags}
}

// startsServers is a suite that starts servers itself.
func (g goSuite) startsServers(targets ...target) suite {
	s := g.suite()
	s.startsServers, s.targets = true, targets
	return s
}

// fetch copies the module from Go's cache into dir, where its files can be written.
func (g goSuite) fetch(ctx context.Context, dir string) error {
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", g.module)
	download.Dir = os.TempDir()
	out, err := download.Output()
	if err != nil {
		return fmt.Errorf("go mod download %s: %w: %s", g.module, err, out)
	}
	var of struct{ Dir string }
	if err := json.Unmarshal(out, &of); err != nil {
		return err
	}
	err = exec.CommandContext(ctx, "cp", "-r", "--no-preserve=mode", of.Dir, dir).Run()
	for _, module := range g.local {
		edit := exec.CommandContext(ctx, "go", "mod", "edit", "-dropreplace="+module)
		edit.Dir = dir
		err = errors.Join(err, edit.Run())
	}
	return err
}

// test runs the tests of the package in a copy of the module.
func (g goSuite) test(ctx context.Context, dir, _ string, s server) ([]outcome, error) {
	work, err := os.MkdirTemp(dir, "work")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(work, os.DirFS(filepath.Join(dir, "source"))); err != nil {
		return nil, err
	}
	work = filepath.Join(work, g.dir)
	if err := g.replacePorts(work, s.port); err != nil {
		return nil, err
	}
	// unitLimit bounds it
	args := []string{"test", "-mod=mod", "-vet=off", "-count", "1", "-timeout", "0", "-json", "."}
	report := filepath.Join(work, "report.xml")
	if g.ginkgo {
		args = append(args, "-ginkgo.junit-report="+report)
	}
	for _, arg := range g.args {
		args = append(args, strings.ReplaceAll(arg, "PORT", s.port))
	}
	test := exec.CommandContext(ctx, "go", args...)
	test.Dir = work
	test.Env = append(slices.Clone(s.env), g.env...)
	out, err := output(test)
	if err != nil || !g.ginkgo {
		outcomes, unread := readGo(out)
		if len(outcomes) == 0 && err == nil {
			err = fmt.Errorf("no test ran: %.2000s", out)
		}
		return outcomes, errors.Join(err, unread)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return readJUnit(text)
}

// replacePorts changes the ports of servers in the test files of dir.
func (g goSuite) replacePorts(dir, port string) error {
	if g.ports == "" {
		return nil
	}
	there := regexp.MustCompile(`("|":|127\.0\.0\.1:|localhost:)(?:` + g.ports + `)(["/?])`)
	return replaceIn(filepath.Join(dir, "*_test.go"), there, "${1}"+port+"${2}")
}

// replaceIn replaces what matches old, in the files that match pattern.
func replaceIn(pattern string, old *regexp.Regexp, with string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, old.ReplaceAll(text, []byte(with)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// readGo reads what go test -json prints of tests without subtests.
func readGo(out string) (outcomes []outcome, err error) {
	printed := map[string]string{}
	parents := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Test == "" {
			continue
		}
		if at := strings.LastIndexByte(e.Test, '/'); at >= 0 {
			parents[e.Test[:at]] = true
		}
		switch e.Action {
		case "output":
			printed[e.Test] += e.Output
		case "pass", "fail", "skip":
			if parents[e.Test] {
				continue
			}
			o := outcome{Test: e.Test, Skipped: e.Action == "skip"}
			if e.Action == "fail" {
				o.Failure = strings.TrimSpace(printed[e.Test])
			}
			outcomes = append(outcomes, o)
		}
	}
	return outcomes, lines.Err()
}

func readJUnit(text []byte) ([]outcome, error) {
	type problem struct {
		Message string `xml:"message,attr"`
	}
	var doc struct {
		Cases []struct {
			Name    string   `xml:"name,attr"`
			Failure *problem `xml:"failure"`
			Error   *problem `xml:"error"`
			Skipped *problem `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	var outcomes []outcome
	for _, c := range doc.Cases {
		o := outcome{Test: strings.TrimPrefix(c.Name, "[It] "), Skipped: c.Skipped != nil}
		for _, p := range []*problem{c.Failure, c.Error} {
			if p != nil {
				o.Failure = "failed: " + p.Message
			}
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}
