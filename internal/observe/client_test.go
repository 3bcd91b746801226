package observe

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// passwords answers a client as a node on which a user has a password.
func passwords(conn net.Conn, password *string) {
	defer conn.Close()
	in := resp.NewReader(bufio.NewReader(conn))
	for {
		call, err := in.Value()
		if err != nil {
			return
		}
		var words []string
		for _, e := range call.Elems {
			words = append(words, e.Text)
		}
		line := strings.Join(words, " ")
		answer := "+OK\r\n"
		if strings.Contains(line, "AUTH ") && !strings.HasSuffix(line, " "+*password) {
			answer = "-WRONGPASS no\r\n"
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// Who has another password now is out, soon, though the connections stay.
func TestOldPasswordEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		password := "see"
		c := NewClient(func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go passwords(there, &password)
			return here, nil
		}, "seer", "see")
		defer c.Close()
		ping := func() error {
			_, err := c.Do(t.Context(), "PING")
			return err
		}
		if err := ping(); err != nil {
			t.Fatal(err)
		}
		password = "other"
		for began := time.Now(); ; time.Sleep(time.Second) {
			if err := ping(); err != nil {
				if err.Error() != "WRONGPASS no" || time.Since(began) < 5*time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				return
			}
			if time.Since(began) > 20*time.Second {
				t.Fatal("the old password is good for ever")
			}
		}
	})
}

// A push, which others can have sent to any connection, passes for no reply.
func TestPushesAreNoReplies(t *testing.T) {
	const push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"
	answer := func(conn net.Conn) {
		defer conn.Close()
		in := resp.NewReader(bufio.NewReader(conn))
		for {
			v, err := in.Value()
			if err != nil {
				return
			}
			last := v.Elems[len(v.Elems)-1]
			if _, err := conn.Write(last.Append([]byte(push), 3)); err != nil {
				return
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go answer(there)
			return here, nil
		}, "", "")
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, word := range []string{"a", "b"} {
			if v, err := c.Do(ctx, "ECHO", word); err != nil || v.Text != word {
				t.Fatalf("%q got the reply %v, %v", word, v, err)
			}
		}
	})
}

// Where SELECT fails nothing runs: it would run in another database.
func TestNothingRunsInAnotherDatabase(t *testing.T) {
	db, ran := "0", []string{}
	c := NewClient(func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			in := resp.NewReader(bufio.NewReader(there))
			for {
				v, err := in.Value()
				if err != nil {
					return
				}
				answer := ":1\r\n"
				switch name, last := v.Elems[0].Text, v.Elems[len(v.Elems)-1].Text; {
				case name == "SELECT" && last == "7":
					answer = "-NOPERM no\r\n"
				case name == "SELECT":
					db = last
				case name == "LOCKS" || name == "PING":
					ran = append(ran, name+" in "+db)
				}
				if _, err := there.Write([]byte(answer)); err != nil {
					return
				}
			}
		}()
		return here, nil
	}, "", "")
	defer c.Close()
	if err := c.Release(t.Context(), 7, "key", "me", "1"); err == nil ||
		err.Error() != "NOPERM no" {
		t.Errorf("a release without the right to SELECT: %v", err)
	}
	if err := c.Release(t.Context(), 3, "key", "me", "1"); err != nil {
		t.Error(err)
	}
	if _, err := c.Do(t.Context(), "PING"); err != nil {
		t.Error(err)
	}
	if want := []string{"LOCKS in 3", "PING in 0"}; !slices.Equal(ran, want) {
		t.Errorf("these ran: %q, want %q", ran, want)
	}
}
