package s3

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Bucket is the name of the bucket that a store has.
const Bucket = "vault"

const (
	region   = "eu-test-1"
	accessID = "AKIDSTUB"
	secret   = "stub/secret+key"
	token    = "session"
	page     = 2 // names in one reply
)

// Store has one bucket.
type Store struct {
	url string

	Mu       sync.Mutex
	Objects  map[string][]byte
	Uploads  map[string]map[string][]byte // parts by upload and number
	started  int                          // uploads so far
	MaxParts int                          // most parts of an upload
	Largest  int                          // body
	// Hung, if it is there, keeps an object after its first byte until it is closed.
	Hung chan struct{}
	// Instead, if it is there, answers in place of the store.
	Instead http.HandlerFunc
}

// Start starts a store on the loopback, which ends with the test.
func Start(t testing.TB) *Store {
	t.Helper()
	return StartAt(t, "127.0.0.1:0")
}

// StartAt starts a store at an address.
func StartAt(t testing.TB, addr string) *Store {
	t.Helper()
	s := &Store{Objects: map[string][]byte{}, Uploads: map[string]map[string][]byte{}}
	srv := httptest.NewUnstartedServer(s)
	_ = srv.Listener.Close()
	var err error
	if srv.Listener, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// Env is the environment of who uses the store, with changes as pairs of name and value.
func (s *Store) Env(changes ...string) map[string]string {
	env := map[string]string{"AWS_ENDPOINT_URL": s.url, "AWS_REGION": region,
		"AWS_ACCESS_KEY_ID": accessID, "AWS_SECRET_ACCESS_KEY": secret,
		"AWS_SESSION_TOKEN": token}
	for i := 0; i < len(changes); i += 2 {
		env[changes[i]] = changes[i+1]
	}
	return env
}

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Largest = max(s.Largest, len(body))
	if s.Instead != nil {
		s.Instead(w, r)
		return
	}
	if why := checkSignature(r, body); why != "" {
		fail(w, http.StatusForbidden, why)
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != Bucket {
		fail(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	q := r.URL.Query()
	switch {
	case key == "" && q.Get("list-type") == "2":
		s.list(w, q)
	case q.Has("uploadId") || q.Has("uploads"):
		s.upload(w, r, key, q, body)
	case s.Objects[key] == nil:
		fail(w, http.StatusNotFound, "NoSuchKey")
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", `"whole"`)
		w.Header().Set("Last-Modified", "Mon, 23 Nov 2026 04:00:00 GMT")
		if hung := s.Hung; hung != nil {
			w.Header().Set("Content-Length", fmt.Sprint(len(s.Objects[key])))
			_, _ = w.Write(s.Objects[key][:1])
			w.(http.Flusher).Flush()
			s.Mu.Unlock()
			<-hung
			s.Mu.Lock()
			return
		}
		_, _ = w.Write(s.Objects[key])
	case r.Method == http.MethodDelete:
		delete(s.Objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		fail(w, http.StatusNotImplemented, "NotImplemented")
	}
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

// list returns a page of the names below a prefix, without those below a further slash.
func (s *Store) list(w http.ResponseWriter, q url.Values) {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(s.Objects)) {
		rest, ok := strings.CutPrefix(key, q.Get("prefix"))
		if ok && !strings.Contains(rest, "/") && key > q.Get("continuation-token") {
			names = append(names, key)
		}
	}
	more := len(names) > page
	names = names[:min(len(names), page)]
	fmt.Fprintf(w, "<ListBucketResult><IsTruncated>%t</IsTruncated>", more)
	for _, name := range names {
		fmt.Fprint(w, "<Contents><Key>")
		_ = xml.EscapeText(w, []byte(name))
		fmt.Fprint(w, "</Key><LastModified>2026-11-23T04:00:00.000Z</LastModified></Contents>")
	}
	if more {
		fmt.Fprintf(w, "<NextContinuationToken>%s</NextContinuationToken>", names[len(names)-1])
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

func (s *Store) upload(w http.ResponseWriter, r *http.Request, key string, q url.Values,
	body []byte) {
	id := q.Get("uploadId")
	parts := s.Uploads[id]
	switch {
	case q.Has("uploads"):
		s.started++
		id = fmt.Sprint("upload", s.started)
		s.Uploads[id] = map[string][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId>"+
			"</InitiateMultipartUploadResult>", id)
	case parts == nil:
		fail(w, http.StatusNotFound, "NoSuchUpload")
	case r.Method == http.MethodPut:
		parts[q.Get("partNumber")] = body
		s.MaxParts = max(s.MaxParts, len(parts))
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, md5.Sum(body)))
	case r.Method == http.MethodDelete:
		delete(s.Uploads, id)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.complete(w, key, id, body)
	}
}

// complete makes an object of the parts that the client lists.
func (s *Store) complete(w http.ResponseWriter, key, id string, body []byte) {
	var wanted struct {
		Part []struct{ PartNumber, ETag string }
	}
	if xml.Unmarshal(body, &wanted) != nil {
		fail(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	whole := []byte{}
	for _, p := range wanted.Part {
		part := s.Uploads[id][p.PartNumber]
		if strings.Trim(p.ETag, `"`) != fmt.Sprintf("%x", md5.Sum(part)) {
			fail(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		whole = append(whole, part...)
	}
	s.Objects[key] = whole
	delete(s.Uploads, id)
	fmt.Fprintf(w, "<CompleteMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key>"+
		"<ETag>whole</ETag></CompleteMultipartUploadResult>", Bucket, key)
}

// checkSignature returns the error code for a request that is not signed by the store's user, or
// whose body is not what was signed.
func checkSignature(r *http.Request, body []byte) string {
	auth, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	fields := map[string]string{}
	for field := range strings.SplitSeq(auth, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	at := r.Header.Get("X-Amz-Date")
	if !ok || len(at) < 8 {
		return "AccessDenied"
	}
	scope := at[:8] + "/" + region + "/s3/aws4_request"
	if fields["Credential"] != accessID+"/"+scope {
		return "InvalidAccessKeyId"
	}
	signed := strings.Split(fields["SignedHeaders"], ";")
	var headers strings.Builder
	for _, name := range signed {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		fmt.Fprintf(&headers, "%s:%s\n", name, strings.TrimSpace(value))
	}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-amz-") || lower == "content-md5" {
			if !slices.Contains(signed, lower) {
				return "HeadersNotSigned"
			}
		}
	}
	sum := r.Header.Get("X-Amz-Content-Sha256")
	canonical := strings.Join([]string{r.Method, r.URL.EscapedPath(),
		strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20"), headers.String(),
		fields["SignedHeaders"], sum}, "\n")
	toSign := "AWS4-HMAC-SHA256\n" + at + "\n" + scope + "\n" + hexSum([]byte(canonical))
	key := []byte("AWS4" + secret)
	for _, part := range append(strings.Split(scope, "/"), toSign) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	md := md5.Sum(body)
	switch {
	case hex.EncodeToString(key) != fields["Signature"],
		r.Header.Get("X-Amz-Security-Token") != token:
		return "SignatureDoesNotMatch"
	case r.Method == http.MethodPut &&
		r.Header.Get("Content-Md5") != base64.StdEncoding.EncodeToString(md[:]):
		return "BadDigest"
	case sum != "UNSIGNED-PAYLOAD" && sum != hexSum(body):
		return "XAmzContentSHA256Mismatch"
	}
	return ""
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
