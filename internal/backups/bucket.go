package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/coordd/coordd/fsm"
)

// partBytes is the size of the parts that a backup is sent in; one is in memory at a time. A file
// has at most 10,000 parts.
const partBytes = 16 << 20

// Bucket is a bucket of an S3-compatible store, below a prefix.
type Bucket struct {
	client       *minio.Client
	name, prefix string
	keyless      bool // no key is in the environment
}

// IsBucket reports whether a target names a bucket.
func IsBucket(target string) bool { return strings.HasPrefix(target, bucketScheme) }

const bucketScheme = "s3://"

// OpenBucket returns the bucket of s3://bucket/prefix. Endpoint, region and credentials are those
// of the environment variables that AWS's tools read. Without credentials there it asks the
// machine's metadata service for them, as those do.
func OpenBucket(target string, getenv func(string) string) (*Bucket, error) {
	// not a URL: an object's name may have any character
	name, prefix, _ := strings.Cut(strings.TrimPrefix(target, bucketScheme), "/")
	if name == "" || strings.ContainsAny(name, "@:?#") {
		return nil, errors.New("must be s3://bucket or s3://bucket/prefix")
	}
	endpoint, tls, err := endpointOf(getenv)
	if err != nil {
		return nil, err
	}
	region := getenv("AWS_REGION")
	if region == "" {
		region = getenv("AWS_DEFAULT_REGION")
	}
	id, secret := getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY")
	if (id == "") != (secret == "") {
		return nil, errors.New("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go together")
	}
	as := credentials.NewIAM("")
	if id != "" {
		as = credentials.NewStaticV4(id, secret, getenv("AWS_SESSION_TOKEN"))
	}
	transport, err := minio.DefaultTransport(tls)
	if err != nil {
		return nil, err
	}
	transport.DialContext = patiently(bucketPatience)
	client, err := minio.New(endpoint, &minio.Options{Creds: as, Secure: tls, Region: region,
		Transport: transport, MaxRetries: bucketTries})
	if err != nil {
		return nil, err
	}
	return &Bucket{client, name, strings.Trim(prefix, "/"), id == ""}, nil
}

// bucketTries is how often a request is sent. A schedule tries again anyway.
const bucketTries = 3

// bucketPatience is how long a store may neither send nor take anything in a request.
var bucketPatience = time.Minute

// patientConn fails when nothing moves for patience: a store that hangs must not keep a schedule
// from its next attempt.
type patientConn struct {
	net.Conn
	patience time.Duration
}

// patiently returns a function that dials a patientConn.
func patiently(patience time.Duration) func(ctx context.Context, network, addr string) (net.Conn,
	error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return patientConn{conn, patience}, nil
	}
}

// Read implements net.Conn.
func (c patientConn) Read(p []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.patience))
	return c.Conn.Read(p)
}

// Write implements net.Conn. It also extends the deadline of a Read that waits for the reply.
func (c patientConn) Write(p []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.patience))
	return c.Conn.Write(p)
}

// endpointOf returns the host and port of the store. The default is AWS.
func endpointOf(getenv func(string) string) (host string, tls bool, err error) {
	text := getenv("AWS_ENDPOINT_URL_S3")
	if text == "" {
		text = getenv("AWS_ENDPOINT_URL")
	}
	if text == "" {
		return "s3.amazonaws.com", true, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.Scheme != "http" && u.Scheme != "https" {
		return "", false, fmt.Errorf("AWS_ENDPOINT_URL must be https://host:port")
	}
	return u.Host, u.Scheme == "https", nil
}

// String implements Store.
func (b *Bucket) String(name string) string {
	return bucketScheme + path.Join(b.name, b.prefix, name)
}

func (b *Bucket) key(name string) string { return path.Join(b.prefix, name) }

// Put implements Store. The store completes the parts to an object at the end; an error abandons
// them.
func (b *Bucket) Put(ctx context.Context, name string, take Take) (fsm.BackupInfo, error) {
	type result struct {
		info fsm.BackupInfo
		err  error
	}
	r, w := io.Pipe()
	done := make(chan result, 1)
	taking, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		info, err := take(taking, w)
		_ = w.CloseWithError(err) // nil is the end of the file
		done <- result{info, err}
	}()
	// The size -1 is not known: the client sends parts. Their MD5 is in a signed header, which more
	// stores understand than signatures inside of the body.
	options := minio.PutObjectOptions{ContentType: "application/octet-stream",
		PartSize: partBytes, SendContentMd5: true, DisableContentSha256: true}
	_, err := b.client.PutObject(ctx, b.name, b.key(name), r, -1, options)
	_ = r.CloseWithError(errors.New("the store stopped reading"))
	cancel()
	taken := <-done
	switch {
	case err == nil:
		return taken.info, taken.err
	case taken.err != nil && strings.Contains(err.Error(), taken.err.Error()):
		return taken.info, taken.err // the cause
	}
	return taken.info, b.fault(name, err)
}

// Open implements Store.
func (b *Bucket) Open(ctx context.Context, name string) (*File, error) {
	r, info, _, err := minio.Core{Client: b.client}.GetObject(ctx, b.name, b.key(name),
		minio.GetObjectOptions{})
	if err != nil {
		return nil, b.fault(name, err)
	}
	return &File{r, info.Size, info.LastModified}, nil
}

// Names implements Store.
func (b *Bucket) Names(ctx context.Context) (names []string, err error) {
	prefix := b.prefix
	if prefix != "" {
		prefix += "/"
	}
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix}) {
		if o.Err != nil {
			return nil, b.fault("", o.Err)
		}
		names = append(names, strings.TrimPrefix(o.Key, prefix))
	}
	return names, nil
}

// Remove implements Store.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.name, b.key(name), minio.RemoveObjectOptions{})
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound {
		return nil
	}
	if err != nil {
		err = b.fault(name, err)
	}
	return err
}

// fault says what failed, and whose answer that may be: without a key, the service that gives keys
// may have refused, and not the store.
func (b *Bucket) fault(name string, err error) error {
	switch minio.ToErrorResponse(err).StatusCode {
	case 0, http.StatusForbidden:
		if b.keyless {
			err = fmt.Errorf("%w (AWS_ACCESS_KEY_ID is not set: the machine's metadata service "+
				"was "+
				"asked for a key)", err)
		}
	}
	return fmt.Errorf("%s: %w", b.String(name), err)
}
