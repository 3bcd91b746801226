// coordd backup: asks a node for its state and writes it to a file, to standard output, or to where
// backups are kept, once or in each interval.

package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/backups"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/server"
)

// backupPatience is how long the node may send nothing. It computes the size of the backup before
// it sends any of it.
const backupPatience = 5 * time.Minute

func newBackup(c console) *cobra.Command {
	call := &backupCall{}
	cmd := &cobra.Command{
		Use:   "backup --from ADDR,…|--data-dir DIR FILE|--to -|--to DIR|--to s3://BUCKET/PREFIX",
		Short: "Writes the state of a cluster, or of a stopped node, to a file",
		Long: `Writes the state of a running cluster, or of a node that is stopped, to a file, to standard output,
or in each interval to a directory or a bucket.`,
		Args: atMost(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string,
			cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault // files, besides verify
		},
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&call.from, "from", "", "any node of the cluster: host:port or "+
		"redis://host:port; or several, with commas: the first that sends a backup")
	flags.StringVar(&call.dataDir, "data-dir", "",
		"instead of --from: data directory of a node that is stopped, for which no cluster is "+
			"needed")
	flags.BoolVar(&call.force, "force", false, "overwrite FILE")
	flags.StringVar(&call.to, "to", "", "instead of FILE: - for standard output; a directory "+
		"or s3://bucket/prefix, where the file is named by the time and checked")
	flags.DurationVar(&call.every, "every", 0,
		"run until stopped, and take a backup in each interval, such as 1h; requires --to")
	flags.IntVar(&call.keep, "keep", 0,
		"after a good backup, remove the oldest ones but so many; 0, the default: keep all")
	as := addCredentials(flags, "user", "password-file", "COORDD_PASSWORD")
	files := addTLS(flags)
	asJSON := flags.Bool("json", false, "verify: print JSON")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		call.file = strings.Join(names, "") // at most one is given
		if err := call.check(); err != nil {
			return err
		}
		if call.dataDir != "" {
			return call.ofStopped(cmd.Context(), c)
		}
		sources, err := as.servers("from", call.from, c.getenv)
		if err != nil {
			return err
		}
		if err := useTLS(files, sources...); err != nil {
			return err
		}
		return call.run(cmd.Context(), c, func(ctx context.Context, w io.Writer) (fsm.BackupInfo,
			error) {
			return takeFromAny(ctx, sources, w, c.stderr)
		})
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "verify FILE|s3://BUCKET/PREFIX/NAME",
		Short: "Checks that FILE can be restored, and shows what it holds",
		Args:  arguments("FILE, the backup to check, or s3://BUCKET/PREFIX/NAME"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return verifyBackup(cmd.Context(), names[0], *asJSON, c)
		},
	})
	return cmd
}

// backupCall is one call of coordd backup. A backup goes to a file, or where --to says.
type backupCall struct {
	from, dataDir string // one of them is set
	file, to      string
	force         bool
	every         time.Duration
	keep          int
}

// toStdout is the value of --to for standard output.
const toStdout = "-"

// minEvery is the shortest interval: each backup writes the whole state.
const minEvery = time.Second

// check checks that a backup has one place to go to, and flags that fit it.
func (b *backupCall) check() error {
	keeps := b.to != "" && b.to != toStdout
	var says string
	switch {
	case b.from == "" && b.dataDir == "":
		says = "coordd backup requires --from, the address of a node, or --data-dir"
	case b.from != "" && b.dataDir != "":
		says = "either --from or --data-dir, not both"
	case b.dataDir != "" && b.every != 0:
		says = "--every requires --from"
	case b.to == "" && b.file == "":
		says = "coordd backup requires FILE, the backup to write, or --to"
	case b.to != "" && b.file != "":
		says = "either FILE or --to, not both"
	case b.to != "" && b.force:
		says = "--force is for FILE"
	case !keeps && (b.every != 0 || b.keep != 0):
		says = "--every and --keep require --to with a directory or s3://bucket"
	case b.every != 0 && b.every < minEvery:
		says = fmt.Sprintf("--every %v: must be at least %v", b.every, minEvery)
	case b.keep < 0:
		says = fmt.Sprintf("--keep %d: must not be negative", b.keep)
	default:
		return nil
	}
	return usageError{errors.New(says)}
}

// run takes one backup, or with --every one after the other.
func (b *backupCall) run(ctx context.Context, c console, take backups.Take) error {
	var done backups.Backup
	var err error
	switch b.to {
	case toStdout:
		if _, err := take(ctx, c.stdout); err != nil {
			return fmt.Errorf("backup failed, its output is incomplete: %w", err)
		}
		return nil
	case "":
		if _, err := os.Lstat(b.file); err == nil && !b.force {
			return fmt.Errorf("%s exists; --force overwrites it", b.file)
		}
		done.BackupInfo, err = backups.WriteFile(ctx, b.file, b.force, take, checkBackup)
		if err == nil {
			done.Where = b.file
		}
	default:
		store, e := openStore(b.to, c.getenv)
		if e != nil {
			return fmt.Errorf("--to %s: %w", shownStore(b.to), e)
		}
		if !backups.IsBucket(b.to) { // the file is of use to whose backups are there
			if err := becomeOwner(b.to, c); err != nil {
				return err
			}
		}
		if b.every > 0 {
			s := &backups.Schedule{To: store, Every: b.every, Keep: b.keep, Take: take,
				Check: checkBackup, Log: newLogger(c.stderr, slog.LevelInfo, "auto")}
			s.Run(ctx)
			return nil
		}
		done, err = backups.Add(ctx, store, b.keep, take, checkBackup)
		for _, old := range done.Unread {
			fmt.Fprintf(c.stderr, "coordd: an old backup stays: %v\n", old)
		}
	}
	if done.Where == "" {
		return fmt.Errorf("backup failed: %w", err)
	}
	fmt.Fprintf(c.stdout, "%s: backup of %s with %d keys, %s, epoch %d, log index %d\n",
		done.Where, cmp.Or(b.from, b.dataDir), done.Keys, byteText(done.Bytes),
		done.Epoch, done.Index)
	return err // an older one stays for a reason that somebody should know
}

// openStore returns the place that --to names. It must exist: a directory that is not mounted must
// not be mistaken for an empty one.
func openStore(target string, getenv func(string) string) (backups.Store, error) {
	if backups.IsBucket(target) {
		return backups.OpenBucket(target, getenv)
	}
	info, err := os.Stat(target)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	return backups.Directory(target), err
}

// shownStore returns the place of a backup as an error may quote it: a bucket's may hold a password
// by mistake.
func shownStore(target string) string {
	if backups.IsBucket(target) && strings.Contains(target, "@") {
		return shown(target)
	}
	return target
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
	return &redis.Options{Addr: text}, cluster.CheckAddress(text)
}

// takeFromAny writes a backup of the first node that sends one. It does not go on to the next node
// after anything was written.
func takeFromAny(ctx context.Context, sources []*redis.Options, w, stderr io.Writer) (
	fsm.BackupInfo, error) {
	out := &countingWriter{w: w}
	var failures []string
	for _, source := range sources {
		info, err := takeBackup(ctx, source, out, stderr)
		if err == nil || out.n > 0 || ctx.Err() != nil {
			return info, err
		}
		failures = append(failures, err.Error())
	}
	return fsm.BackupInfo{}, errors.New(strings.Join(failures, "; "))
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
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

// ofStopped takes a backup of the data directory of a node that is stopped. It makes no file before
// the state is there: what cannot be replayed ends the process.
func (b *backupCall) ofStopped(ctx context.Context, c console) error {
	o, state, err := openOffline(b.dataDir)
	if err != nil {
		return err
	}
	held, err := o.Contents()
	if err == nil {
		err = o.Replay(0, nil)
	}
	if err := errors.Join(err, o.Close()); err != nil { // as who opened it: run may become another
		return err
	}
	fmt.Fprintln(c.stderr, "coordd: this is what one node had: it may lack the newest writes that "+
		"others acknowledged, and have some that nobody did")
	if held.Owed > 0 {
		fmt.Fprintf(c.stderr, "coordd: it had more: %s\n", held.Owing())
	}
	return b.run(ctx, c, func(_ context.Context, w io.Writer) (fsm.BackupInfo, error) {
		return writeState(state.Freeze(), w, c.stderr)
	})
}

// writeState writes a state, and checks what it writes.
func writeState(state *fsm.Snapshot, w, stderr io.Writer) (fsm.BackupInfo, error) {
	p := newProgress(stderr, "backup", state.Size())
	defer p.clear()
	in, out := io.Pipe()
	written := make(chan error, 1)
	go func() {
		_, err := state.WriteTo(io.MultiWriter(w, p, out))
		out.CloseWithError(err)
		written <- err
	}()
	info, err := checkBackup(in)
	in.CloseWithError(err)
	return info, cmp.Or(<-written, err)
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
	in := resp.NewReplies(bufio.NewReaderSize(patientReader{conn}, 1<<16), replyLimits)
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
	defer p.clear()
	from, to := &failingReader{Reader: in.Text(head)}, &failingWriter{Writer: w}
	info, err := checkBackup(io.TeeReader(from, io.MultiWriter(to, p)))
	switch {
	case to.err != nil:
		return none, to.err
	case err == nil && info.Bytes != size, from.err != nil && p.done < size:
		return none, fmt.Errorf("the connection to %s ended after %d of %d bytes", source.Addr,
			p.done, size)
	}
	return info, err
}

// checkBackup reads a backup as a restore would, and keeps nothing of it.
func checkBackup(r io.Reader) (fsm.BackupInfo, error) {
	return fsm.CheckSnapshot(r, commands.NewTable(commands.Specs(), server.Specs()))
}

// failingReader keeps the first error of a reader, also its end.
type failingReader struct {
	io.Reader
	err error
}

func (r *failingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if r.err == nil {
		r.err = err
	}
	return n, err
}

// failingWriter keeps the first error of a writer.
type failingWriter struct {
	io.Writer
	err error
}

func (w *failingWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if w.err == nil {
		w.err = err
	}
	return n, err
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
func ask(conn net.Conn, in *resp.Replies, kind byte, words ...string) (resp.Head, error) {
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

// clear clears the line.
func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprint(p.w, clearLine)
	}
}

const clearLine = "\r\x1b[K"
