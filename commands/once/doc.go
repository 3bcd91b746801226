// Package once remembers the replies of requests that run once. A client gives such a request an
// id; when it sends the request again, it gets the first reply, and nothing runs.
package once
