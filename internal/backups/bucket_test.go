package backups

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/tests/s3"
)

// env returns the environment of who uses the store, with changes as pairs of name and value.
func env(s *s3.Store, changes ...string) func(string) string {
	vars := s.Env(changes...)
	return func(name string) string { return vars[name] }
}

func openStub(t *testing.T, s *s3.Store, prefix string) *Bucket {
	t.Helper()
	b, err := OpenBucket("s3://"+s3.Bucket+prefix, env(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBucket(t *testing.T) {
	s := s3.Start(t)
	checkRetention(t, openStub(t, s, "/a prefix/ü+"))
	checkFailures(t, openStub(t, s, "/failures"))
	if len(s.Uploads) > 0 {
		t.Error("uploads were not abandoned:", s.Uploads)
	}
	at := openStub(t, s, "")
	name := add(t, at, 1, state(t))
	if got := at.String(name); got != "s3://vault/"+name {
		t.Error(got)
	}
}

// TestBucketWithoutKey says that the answer is not the store's.
func TestBucketWithoutKey(t *testing.T) {
	s := s3.Start(t)
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer metadata.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.URL)
	b, err := OpenBucket("s3://"+s3.Bucket, env(s, "AWS_ACCESS_KEY_ID", "",
		"AWS_SECRET_ACCESS_KEY", ""))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Names(t.Context())
	if err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID is not set") {
		t.Error(err)
	}
	_, err = openStub(t, s, "").Open(t.Context(), "none")
	if err == nil || strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Error(err)
	}
}

// TestBucketInParts sends more than a part, which the store puts together.
func TestBucketInParts(t *testing.T) {
	s := s3.Start(t)
	b := openStub(t, s, "/large")
	whole := bytes.Repeat([]byte("0123456789abcde\n"), (2*partBytes+5000)/16)
	if _, err := b.Put(t.Context(), "large", func(_ context.Context, w io.Writer) (fsm.BackupInfo,
		error) {
		_, err := io.Copy(w, bytes.NewReader(whole))
		return fsm.BackupInfo{}, err
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.Objects["large/large"], whole) || s.MaxParts != 3 || s.Largest != partBytes {
		t.Errorf("%d bytes in %d parts of up to %d", len(s.Objects["large/large"]), s.MaxParts,
			s.Largest)
	}
}

func TestBucketRefusals(t *testing.T) {
	s := s3.Start(t)
	for _, c := range []struct {
		target, says string
		env          []string
	}{
		{"s3://", "must be s3://bucket", nil},
		{"s3://user@vault", "must be s3://bucket", nil},
		{"s3://vault", "AWS_ENDPOINT_URL must be", []string{"AWS_ENDPOINT_URL", "here:9000"}},
		{"s3://vault", "AWS_ENDPOINT_URL must be", []string{"AWS_ENDPOINT_URL_S3", "ftp://here"}},
		{"s3://vault", "go together", []string{"AWS_SECRET_ACCESS_KEY", ""}},
		{"s3://vault", "SignatureDoesNotMatch", []string{"AWS_SECRET_ACCESS_KEY", "wrong"}},
		{"s3://vault", "SignatureDoesNotMatch", []string{"AWS_SESSION_TOKEN", "wrong"}},
		{"s3://vault", "InvalidAccessKeyId", []string{"AWS_ACCESS_KEY_ID", "wrong"}},
		{"s3://vault", "InvalidAccessKeyId", []string{"AWS_REGION", "elsewhere"}},
		{"s3://other", "NoSuchBucket", nil},
	} {
		b, err := OpenBucket(c.target, env(s, c.env...))
		if err == nil {
			_, err = Add(t.Context(), b, 1, taking(state(t)), check)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %v: %v, want %s", c.target, c.env, err, c.says)
		}
	}
	if len(s.Objects) > 0 {
		t.Error(s.Objects)
	}
}

// TestBucketEndsAtOnce has a backup interrupted amid its transfer.
func TestBucketEndsAtOnce(t *testing.T) {
	s := s3.Start(t)
	b := openStub(t, s, "")
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := b.Put(ctx, "name", func(ctx context.Context, w io.Writer) (fsm.BackupInfo, error) {
		_, _ = w.Write(make([]byte, partBytes))
		cancel()
		<-ctx.Done()
		return fsm.BackupInfo{}, ctx.Err()
	}); err == nil {
		t.Error("an interrupted backup is none")
	}
	if len(s.Objects) > 0 {
		t.Error("an interrupted backup was stored")
	}
}

// TestBucketHangs has a store stop amid a reply: the backup fails, and the next one succeeds.
func TestBucketHangs(t *testing.T) {
	defer func(d time.Duration) { bucketPatience = d }(bucketPatience)
	bucketPatience = 100 * time.Millisecond
	s := s3.Start(t)
	b := openStub(t, s, "")
	hung := make(chan struct{})
	s.Hung = hung
	if _, err := Add(t.Context(), b, 1, taking(state(t)), check); err == nil ||
		!strings.Contains(err.Error(), "timeout") {
		t.Error(err)
	}
	close(hung)
	s.Mu.Lock()
	s.Hung = nil
	s.Mu.Unlock()
	name := add(t, b, 1, state(t))
	if got := keptIn(t, b); len(got) != 1 || got[0] != name {
		t.Error(got)
	}
}

// TestOpen reads backups by the names that their takers print.
func TestOpen(t *testing.T) {
	s, good := s3.Start(t), state(t)
	for _, at := range []Store{Directory(t.TempDir()), openStub(t, s, ""),
		openStub(t, s, "/a%20b#c?/ü+")} {
		b, err := Add(t.Context(), at, 1, taking(good), check)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Open(t.Context(), b.Where, env(s))
		if err != nil {
			t.Error(b.Where, err)
			continue
		}
		text, err := io.ReadAll(f)
		if err != nil || !bytes.Equal(text, good) || f.Bytes != int64(len(good)) ||
			f.Written.IsZero() {
			t.Errorf("%s: %d of %d bytes, %v, %v", b.Where, len(text), f.Bytes, f.Written, err)
		}
		_ = f.Close()
	}
	for target, says := range map[string]string{"s3://": "must be s3://bucket/name",
		"s3://vault": "must be s3://bucket/name", "s3://vault/": "must be s3://bucket/name",
		"s3://vault/none": "s3://vault/none: NoSuchKey", "none": "no such file"} {
		if _, err := Open(t.Context(), target, env(s)); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", target, err, says)
		}
	}
}

// TestBucketTalksNonsense has something else than a store answer.
func TestBucketTalksNonsense(t *testing.T) {
	s, good := s3.Start(t), state(t)
	b := openStub(t, s, "")
	last := add(t, b, 1, good)
	for name, answer := range map[string]string{"a page": "<html>Log in, please</html>",
		"nothing": "", "text": "ok", "a cut list": "<ListBucketResult><IsTruncated>true"} {
		s.Mu.Lock()
		s.Instead = func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, answer)
		}
		s.Mu.Unlock()
		if b, err := Add(t.Context(), b, 1, taking(good), check); err == nil {
			t.Errorf("%s: %+v", name, b)
		}
		if f, err := b.Open(t.Context(), last); err == nil {
			if _, err := check(f); err == nil {
				t.Errorf("%s passes for a backup", name)
			}
			_ = f.Close()
		}
	}
	s.Mu.Lock()
	s.Instead = nil
	s.Mu.Unlock()
	if got := keptIn(t, b); len(got) != 1 || got[0] != last {
		t.Error(got)
	}
}
