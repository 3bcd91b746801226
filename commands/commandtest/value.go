package commandtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/coordd/coordd/internal/resp"
)

// Value is a reply as a tree. Its String is the notation of scenario files.
type Value = resp.Value

// waits is the Kind of what the machine returns in place of a reply if a command waits: see
// commands.Block. It is no type of the protocol. Its one element is the value that follows.
const waits = '?'

// Parse parses one reply. Bytes after it are an error.
func Parse(raw []byte) (Value, error) {
	all, err := ParseAll(raw)
	switch {
	case err != nil:
		return Value{}, err
	case len(all) != 1:
		return Value{}, fmt.Errorf("%d replies in %q, want one", len(all), clip(string(raw)))
	}
	return all[0], nil
}

// ParseAll parses the replies of several calls.
func ParseAll(raw []byte) (all []Value, err error) {
	in := bufio.NewReader(bytes.NewReader(raw))
	for {
		v, err := parse(in)
		switch {
		case err == io.EOF:
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%w in %q", err, clip(string(raw)))
		}
		all = append(all, v)
	}
}

// parse parses the next reply. At the end the error is io.EOF.
func parse(in *bufio.Reader) (Value, error) {
	if kind, err := in.Peek(1); err != nil || kind[0] != waits {
		return resp.NewReader(in).Value()
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return Value{}, io.ErrUnexpectedEOF
	}
	again, err := resp.NewReader(in).Value()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	text := strings.TrimSuffix(line[1:], "\r\n")
	return Value{Kind: waits, Text: text, Elems: []Value{again}}, err
}

func clip(s string) string {
	const most = 2000
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
