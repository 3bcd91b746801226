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
	"strings"
)

// The suites of Go modules have their port in the sources: it is replaced there.
var (
	goRedisSuite = goSuite("go-redis", "github.com/redis/go-redis/v9@v9.23.0", "6379",
		testGoRedis)
	redisRateSuite = goSuite("redis_rate", "github.com/go-redis/redis_rate/v10@v10.0.1", "6379",
		testGo)
	redislockSuite = goSuite("redislock", "github.com/bsm/redislock@v0.9.4", "6379", testGo)
	hiredisSuite   = suite{name: "hiredis", fetch: fetchHiredis, test: testHiredis}
)

// goSuite is the suite of a Go module whose tests expect a server on portThere.
func goSuite(name, module, portThere string,
	test func(ctx context.Context, dir string) ([]outcome, error)) suite {

	_, version, _ := strings.Cut(module, "@")
	fetch := func(ctx context.Context, dir string) (string, []string, error) {
		return version, []string{"tests"}, fetchModule(ctx, filepath.Join(dir, "source"), module)
	}
	return suite{name: name, fetch: fetch,
		test: func(ctx context.Context, dir, _ string, port int) ([]outcome, error) {
			work, err := os.MkdirTemp(dir, "work")
			if err != nil {
				return nil, err
			}
			source := os.DirFS(filepath.Join(dir, "source"))
			if err := errors.Join(os.CopyFS(work, source),
				replacePort(work, portThere, fmt.Sprint(port))); err != nil {
				return nil, err
			}
			return test(ctx, work)
		}}
}

// fetchModule copies a module from Go's cache into dir, where its files can be written.
func fetchModule(ctx context.Context, dir, module string) error {
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	download.Dir = os.TempDir()
	out, err := download.Output()
	if err != nil {
		return fmt.Errorf("go mod download %s: %w: %s", module, err, out)
	}
	var of struct{ Dir string }
	if err := json.Unmarshal(out, &of); err != nil {
		return err
	}
	return exec.CommandContext(ctx, "cp", "-r", "--no-preserve=mode", of.Dir, dir).Run()
}

// replacePort changes the port of the server in the test files of dir.
func replacePort(dir, from, to string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return err
	}
	port := regexp.MustCompile(`([:"])` + from + `"`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		changed := port.ReplaceAll(text, []byte("${1}"+to+`"`))
		if err := os.WriteFile(file, changed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// testGo runs the tests of a package.
func testGo(ctx context.Context, dir string) ([]outcome, error) {
	test := exec.CommandContext(ctx, "go", "test", "-mod=mod", "-count", "1", "-json", ".")
	test.Dir = dir
	out, err := output(test)
	return readGo(out), err
}

// readGo reads what go test -json prints of tests without subtests.
func readGo(out string) []outcome {
	var outcomes []outcome
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
	return outcomes
}

// testGoRedis runs go-redis's specifications as on a single server of an enterprise, so that they
// need no Sentinel, ring or cluster, whose processes they would have to start.
func testGoRedis(ctx context.Context, dir string) ([]outcome, error) {
	file := filepath.Join(dir, "report.xml")
	test := exec.CommandContext(ctx, "go", "test", "-mod=mod", "-count", "1", "-run",
		"^TestGinkgoSuite$", ".", "-ginkgo.junit-report="+file, "-ginkgo.skip="+goRedisOut)
	test.Dir = dir
	test.Env = append(os.Environ(), "RE_CLUSTER=true", "REDIS_VERSION=7.4")
	out, err := output(test)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return readJUnit(text)
}

// goRedisOut are specifications of modules of Redis, and of clients of Sentinel, rings and
// clusters of Redis's own processes.
const goRedisOut = "RediSearch|RedisTimeseries|JSON Commands|Probabilistic|ClusterClient|" +
	"Sentinel|Redis Ring|vectorset|UniversalClient"

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

func fetchHiredis(ctx context.Context, dir string) (string, []string, error) {
	version, err := fetchDebian(ctx, dir, "hiredis")
	if err != nil {
		return "", nil, err
	}
	build := exec.CommandContext(ctx, "make", "hiredis-test")
	build.Dir = dir
	out, err := output(build)
	if err != nil {
		return "", nil, fmt.Errorf("make hiredis-test: %w: %s", err, out)
	}
	return version, []string{"tests"}, nil
}

var hiredisLine = regexp.MustCompile(`^#\d+ (.*): (?:(PASSED)|FAILED|SKIPPED)$`)

func testHiredis(ctx context.Context, dir, _ string, port int) ([]outcome, error) {
	test := exec.CommandContext(ctx, "./hiredis-test", "-h", "127.0.0.1", "-p", fmt.Sprint(port),
		"--skip-throughput")
	test.Dir = dir
	out, err := output(test)
	var outcomes []outcome
	for line := range strings.Lines(colors.ReplaceAllString(out, "")) {
		line = strings.TrimSpace(line)
		m := hiredisLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		o := outcome{Test: m[1], Skipped: strings.HasSuffix(line, "SKIPPED")}
		if m[2] == "" && !o.Skipped {
			o.Failure = line
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, err
}
