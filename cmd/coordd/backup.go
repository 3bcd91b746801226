// coordd backup: asks a node for its state and writes a file that appears complete or not at all.

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/files"
	"github.com/coordd/coordd/internal/resp"
)

// backupPatience is how long the node may send nothing. It computes the size of the backup before
// it sends any of it.
const backupPatience = 5 * time.Minute

func runBackup(ctx context.Context, args []string, c console) error {
	flags := newFlagSet("coordd backup")
	from := flags.String("from", "", "any node of the cluster: host:port or redis://host:port")
	force := flags.Bool("force", false, "overwrite FILE")
	to := flags.String("to", "", "instead of FILE: - is standard output")
	as := addCredentials(flags, "user", "password-file", "COORDD_PASSWORD")
	files := addTLS(flags)
	asJSON := flags.Bool("json", false, "verify: print JSON")
	if len(args) > 0 && args[0] == "verify" {
		names, err := parseArgs(flags, args[1:], "FILE, the backup to check")
		if err != nil {
			return err
		}
		return verifyBackup(names[0], *asJSON, c)
	}
	names, err := parseAtMost(flags, args, 1)
	if err != nil {
		return err
	}
	if err := checkTarget(names, *to, *force); err != nil {
		return err
	}
	if *from == "" {
		return usageError{errors.New("coordd backup requires --from, the address of a node")}
	}
	source, err := parseServer(*from)
	if err != nil {
		return fmt.Errorf("--from %s: %w", shown(*from), err)
	}
	if err := as.complete(source, c.getenv); err != nil {
		return err
	}
	if err := useTLS(files, source); err != nil {
		return err
	}
	if *to == toStdout {
		if _, err := takeBackup(ctx, source, c.stdout, c.stderr); err != nil {
			return fmt.Errorf("backup failed, its output is incomplete: %w", err)
		}
		return nil
	}
	file := names[0]
	if _, err := os.Lstat(file); err == nil && !*force {
		return fmt.Errorf("%s exists; --force overwrites it", file)
	}
	info, err := writeBackup(ctx, source, file, *force, c.stderr)
	if err != nil {
		return fmt.Errorf("backup failed: %w", err)
	}
	fmt.Fprintf(c.stdout, "%s: backup of %s with %d keys, %s, epoch %d, log index %d\n", file,
		source.Addr, info.Keys, byteText(info.Bytes), info.Epoch, info.Index)
	return nil
}

// toStdout is the value of --to for standard output.
const toStdout = "-"

// checkTarget checks that a backup has one place to go to.
func checkTarget(names []string, to string, force bool) error {
	switch {
	case to == "" && len(names) == 0:
		return usageError{errors.New("coordd backup requires FILE, the backup to write, or --to")}
	case to != "" && len(names) > 0:
		return usageError{errors.New("either FILE or --to, not both")}
	case to != "" && to != toStdout:
		return usageError{fmt.Errorf("--to %q: must be -, for standard output", shown(to))}
	case to != "" && force:
		return usageError{errors.New("--force is for FILE")}
	}
	return nil
}

// parseServer reads the address of a server: host:port, or a URL with redis://, rediss:// or
// unix://.
func parseServer(text string) (*redis.Options, error) {
	if strings.Contains(text, "://") {
		o, err := redis.ParseURL(text)
		if err != nil {
			return nil, errors.New(
				"must be host:port or redis://[user@]host:port, rediss:// for TLS")
		}
		return o, nil
	}
	return &redis.Options{Addr: text}, checkAddress(text)
}

// writeBackup writes to a temporary file and renames it when it is complete and on disk. The
// temporary name is unique and created exclusively: concurrent backups do not collide, and no link
// is followed.
func writeBackup(ctx context.Context, source *redis.Options, file string, force bool,
	stderr io.Writer) (info fsm.BackupInfo, err error) {
	// with mode 0600: it holds all data
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return info, err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if info, err = takeBackup(ctx, source, tmp, stderr); err != nil {
		return info, err
	}
	if err := errors.Join(tmp.Sync(), tmp.Close()); err != nil {
		return info, err
	}
	if err := publish(tmp.Name(), file, force); err != nil {
		return info, err
	}
	return info, files.SyncDir(filepath.Dir(file))
}

// publish gives a finished file its name. Unless force is set, it replaces no file, not even a
// concurrent one.
func publish(tmp, file string, force bool) error {
	if !force {
		switch err := os.Link(tmp, file); {
		case err == nil:
			return os.Remove(tmp)
		case errors.Is(err, fs.ErrExist):
			return err
		}
		if _, err := os.Lstat(file); err == nil { // a file system without hard links
			return fmt.Errorf("%s: %w", file, fs.ErrExist)
		}
	}
	return os.Rename(tmp, file)
}

// takeBackup writes a backup of a running cluster to w. After an error, what was written is
// incomplete.
func takeBackup(ctx context.Context, source *redis.Options, w, stderr io.Writer) (
	fsm.BackupInfo, error) {
	conn, err := dialServer(ctx, source)
	if err != nil {
		return fsm.BackupInfo{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	info, err := receiveBackup(conn, source, w, stderr)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return info, err
}

func dialServer(ctx context.Context, o *redis.Options) (net.Conn, error) {
	d := &net.Dialer{Timeout: 5 * time.Second}
	network := o.Network
	if network == "" {
		network = "tcp"
	}
	if o.TLSConfig != nil {
		return (&tls.Dialer{NetDialer: d, Config: o.TLSConfig}).DialContext(ctx, network, o.Addr)
	}
	return d.DialContext(ctx, network, o.Addr)
}

// receiveBackup asks for the state, checks it and writes it to w.
func receiveBackup(conn net.Conn, source *redis.Options, w io.Writer,
	stderr io.Writer) (fsm.BackupInfo, error) {
	var none fsm.BackupInfo
	in := resp.NewReaderLimits(bufio.NewReaderSize(patientReader{conn}, 1<<16), replyLimits)
	if source.Password != "" {
		words := []string{"AUTH", source.Password}
		if source.Username != "" {
			words = []string{"AUTH", source.Username, source.Password}
		}
		if _, err := ask(conn, in, resp.Status, words...); err != nil {
			return none, err
		}
	}
	head, err := ask(conn, in, resp.Bulk, "RAFT", "BACKUP")
	if err != nil {
		return none, err
	}
	size := head.N
	if size < 0 {
		return none, fmt.Errorf("%s returned an invalid backup", source.Addr)
	}
	p := newProgress(stderr, "backup", size)
	defer p.end()
	info, err := fsm.CheckSnapshot(io.TeeReader(in.Text(head), io.MultiWriter(w, p)))
	switch {
	case err == nil && info.Bytes != size, errors.Is(err, fsm.ErrSnapshotCorrupt) && p.done < size:
		return none, fmt.Errorf("the connection to %s ended after %d of %d bytes", source.Addr,
			p.done, size)
	}
	return info, err
}

// patientReader fails if the node sends nothing for backupPatience.
type patientReader struct{ conn net.Conn }

func (r patientReader) Read(p []byte) (int, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(backupPatience)); err != nil {
		return 0, err
	}
	return r.conn.Read(p)
}

// replyLimits allow backups of any size: they are streamed.
var replyLimits = resp.Limits{Line: 1 << 16, Text: math.MaxInt64}

// ask sends a command and returns the head of its reply, which must be of the given kind. An error
// reply is an error.
func ask(conn net.Conn, in *resp.Reader, kind byte, words ...string) (resp.Head, error) {
	if _, err := conn.Write(resp.AppendCommand(nil, words...)); err != nil {
		return resp.Head{}, err
	}
	head, err := in.Head()
	switch {
	case errors.Is(err, resp.ErrMalformed), errors.Is(err, resp.ErrTooLarge):
	case err != nil || head.Kind == kind:
		return head, err
	case head.IsError():
		return head, fmt.Errorf("%s answered %s: %s", conn.RemoteAddr(), words[0], head.Text)
	}
	return head, fmt.Errorf("%s is not a coordd node: unexpected reply", conn.RemoteAddr())
}

func byteText(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// progress shows progress on a terminal and is silent elsewhere. It counts the bytes written to it.
type progress struct {
	w           io.Writer // nil: silent
	what        string
	total, done int64
	shown       time.Time
}

const progressEvery = 200 * time.Millisecond

func newProgress(w io.Writer, what string, total int64) *progress {
	p := &progress{what: what, total: total, shown: time.Now()}
	if isTerminal(w) {
		p.w = w
	}
	return p
}

func (p *progress) Write(b []byte) (int, error) {
	p.done += int64(len(b))
	p.show(func() string {
		return fmt.Sprintf("%s: %s of %s", p.what, byteText(p.done), byteText(p.total))
	})
	return len(b), nil
}

// show replaces the text on the terminal, at most once per progressEvery.
func (p *progress) show(text func() string) {
	if p.w != nil && time.Since(p.shown) >= progressEvery {
		p.shown = time.Now()
		fmt.Fprint(p.w, clearLine, text())
	}
}

// end clears the line.
func (p *progress) end() {
	if p.w != nil {
		fmt.Fprint(p.w, clearLine)
	}
}

const clearLine = "\r\x1b[K"
