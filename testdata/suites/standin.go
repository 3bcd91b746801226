package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Some suites start redis-server themselves, with a configuration for each test. For them this
// program stands first on PATH under that name: it starts coordd, one node or three, with the same
// ports, password, users and certificates. Other options have no effect.
const (
	standInName   = "redis-server"
	standInBinary = "COORDD_SUITES_BINARY" // path of coordd
	standInNodes  = "COORDD_SUITES_NODES"  // number of nodes
	standInDir    = "COORDD_SUITES_DIR"    // where data goes
)

// standIn returns the environment of a suite that finds this program as redis-server.
func standIn(dir, binary string, t target) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	bin, err := os.MkdirTemp(dir, "bin")
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), standInBinary+"="+binary,
		standInNodes+"="+strconv.Itoa(t.nodes), standInDir+"="+bin)
	return env, os.Symlink(self, filepath.Join(bin, standInName))
}

// runStandIn serves as redis-server does with these arguments, until it is told to end.
func runStandIn(args []string) error {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Println("Redis server v=7.4.0")
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := readServerConfig(args, os.Stdin)
	if err != nil {
		return err
	}
	// As with redis-server, clients may connect at once. They are served when the node is ready.
	listeners, err := config.listen()
	if err != nil {
		return err
	}
	dir := os.Getenv(standInDir)
	flags, err := config.flags(dir)
	if err != nil {
		return err
	}
	t := oneNode
	if os.Getenv(standInNodes) != "1" {
		t = follower
	}
	runtime.LockOSThread() // nodes end with the thread that started them
	served, stopNodes, err := t.start(ctx, os.Getenv(standInBinary), dir, flags...)
	defer stopNodes()
	if err != nil {
		return err
	}
	for option, l := range listeners {
		to := served.plain
		if option == "tls-port" {
			to = served.tls
		}
		go proxy(l, to)
	}
	fmt.Println(" * The server is now ready to accept connections on port", config.options["port"])
	<-ctx.Done()
	return nil
}

// serverConfig is a configuration of redis-server: options by name, and lines of users.
type serverConfig struct {
	options map[string]string
	users   []string
}

// readServerConfig reads options of the form --NAME VALUE, or a file on stdin if args is "-".
func readServerConfig(args []string, stdin io.Reader) (serverConfig, error) {
	c := serverConfig{options: map[string]string{"port": "6379"}}
	if len(args) == 1 && args[0] == "-" {
		lines := bufio.NewScanner(stdin)
		for lines.Scan() {
			name, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
			if name == "user" {
				c.users = append(c.users, name+" "+value)
			} else {
				c.options[name] = strings.Trim(value, `"`)
			}
		}
		return c, lines.Err()
	}
	for ; len(args) >= 2 && strings.HasPrefix(args[0], "--"); args = args[2:] {
		c.options[args[0][2:]] = args[1]
	}
	if len(args) > 0 {
		return c, fmt.Errorf("%q: neither - nor --NAME VALUE", args)
	}
	return c, nil
}

// listen listens where the options say, and returns the listeners by option.
func (c serverConfig) listen() (map[string]net.Listener, error) {
	listeners := map[string]net.Listener{}
	for _, option := range []string{"port", "tls-port", "unixsocket"} {
		value := c.options[option]
		if value == "" || value == "0" {
			continue
		}
		network, addr := "tcp", "127.0.0.1:"+value
		if option == "unixsocket" {
			network, addr = "unix", value
		}
		l, err := net.Listen(network, addr)
		if err != nil {
			return nil, err
		}
		listeners[option] = l
	}
	return listeners, nil
}

// flags returns the flags of coordd for the options, whose files are put into dir.
func (c serverConfig) flags(dir string) ([]string, error) {
	var flags []string
	files := map[string]string{} // by flag
	if password := c.options["requirepass"]; password != "" {
		files["--default-password-file"] = password
	}
	if len(c.users) > 0 {
		files["--users-file"] = strings.Join(c.users, "\n") + "\n"
	}
	for flag, text := range files {
		file := filepath.Join(dir, c.options["port"]+flag)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		flags = append(flags, flag, file)
	}
	for option, flag := range map[string]string{"tls-cert-file": "--tls-cert",
		"tls-key-file": "--tls-key", "tls-ca-cert-file": "--tls-ca"} {
		if value := c.options[option]; value != "" {
			flags = append(flags, flag, value)
		}
	}
	return flags, nil
}

// proxy passes connections of l on to addr.
func proxy(l net.Listener, addr string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // the process ends
		}
		server, err := net.Dial("tcp", addr)
		if err != nil {
			client.Close()
			continue
		}
		go pass(server, client)
		go pass(client, server)
	}
}

// pass copies what src sends, and its end.
func pass(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	half, ok := dst.(interface{ CloseWrite() error })
	if !ok || errors.Join(err, half.CloseWrite()) != nil {
		dst.Close()
	}
}
