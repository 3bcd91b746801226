package backups

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/coordd/coordd/fsm"
)

func openStub(t *testing.T, s *stub, prefix string) *Bucket {
	t.Helper()
	b, err := OpenBucket("s3://"+stubBucket+prefix, s.env())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBucket(t *testing.T) {
	s := startStub(t)
	checkRetention(t, openStub(t, s, "/a prefix/ü+"))
	checkFailures(t, openStub(t, s, "/failures"))
	if len(s.uploads) > 0 {
		t.Error("uploads were not abandoned:", s.uploads)
	}
	at := openStub(t, s, "")
	name := add(t, at, 1, state(t))
	if got := at.String(name); got != "s3://vault/"+name {
		t.Error(got)
	}
}

// TestBucketInParts sends more than a part, which the store puts together.
func TestBucketInParts(t *testing.T) {
	s := startStub(t)
	b := openStub(t, s, "/large")
	whole := bytes.Repeat([]byte("0123456789abcde\n"), (2*partBytes+5000)/16)
	if _, err := b.Put(t.Context(), "large", func(_ context.Context, w io.Writer) (fsm.BackupInfo,
		error) {
		_, err := io.Copy(w, bytes.NewReader(whole))
		return fsm.BackupInfo{}, err
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.objects["large/large"], whole) || s.maxParts != 3 || s.largest != partBytes {
		t.Errorf("%d bytes in %d parts of up to %d", len(s.objects["large/large"]), s.maxParts,
			s.largest)
	}
}

func TestBucketRefusals(t *testing.T) {
	s := startStub(t)
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
		b, err := OpenBucket(c.target, s.env(c.env...))
		if err == nil {
			_, err = Add(t.Context(), b, 1, taking(state(t)))
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %v: %v, want %s", c.target, c.env, err, c.says)
		}
	}
	if len(s.objects) > 0 {
		t.Error(s.objects)
	}
}

// TestBucketEndsAtOnce has a backup interrupted amid its transfer.
func TestBucketEndsAtOnce(t *testing.T) {
	s := startStub(t)
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
	if len(s.objects) > 0 {
		t.Error("an interrupted backup was stored")
	}
}
