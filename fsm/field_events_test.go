// Notifications about the TTLs of hash fields, which the scenarios' redis-server does not have.

package fsm

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

func TestNotificationsOfFields(t *testing.T) {
	m := newestMachine(testTable())
	var err error
	if m.events.notify, err = commands.ParseNotifyFlags("EAn"); err != nil {
		t.Fatal(err)
	}
	index, clockMs := uint64(0), int64(1000)
	for _, c := range []struct {
		afterMs int64
		call    string
		want    string
	}{
		{0, "HSET h a 1 b 2 c 3", "new h,hset h"},
		{0, "HEXPIRE h 10 FIELDS 2 a none", "hexpire h"},
		{0, "HEXPIRE h 10 NX FIELDS 1 a", ""},
		{0, "HPERSIST h FIELDS 2 a b", "hpersist h"},
		{0, "HPERSIST h FIELDS 1 a", ""},
		{0, "HGETEX h FIELDS 1 a", ""},
		{0, "HGETEX h PX 50 FIELDS 2 a none", "hexpire h"},
		{0, "HGETEX h PERSIST FIELDS 2 a b", "hpersist h"},
		{0, "HGETEX h PX 0 FIELDS 1 a", "hdel h"},
		{0, "HGETDEL h FIELDS 2 b none", "hdel h"},
		{0, "HPEXPIRE h 0 FIELDS 1 c", "hdel h,del h"},
		{0, "HSETEX h FIELDS 1 a 1", "new h,hset h"},
		{0, "HSETEX h PX 50 FIELDS 2 a 1 b 2", "hset h,hexpire h"},
		{0, "HSETEX h FNX FIELDS 1 a 1", ""},
		{0, "HSETEX h KEEPTTL FIELDS 1 c 1", "hset h"},
		{0, "HSETEX h PX 0 FIELDS 1 c 1", "hset h,hdel h"},
		{0, "HSETEX g PX 0 FIELDS 1 c 1", "new g,hset g,hdel g,del g"},
		{0, "HPEXPIRE h 100 FIELDS 1 b", "hexpire h"},
		{51, "PING", "hexpired h"},
		{50, "HSET h x 1", "hexpired h,del h,new h,hset h"},
		{0, "HPEXPIRE h 20 FIELDS 1 x", "hexpire h"},
		{0, "PEXPIRE h 10", "expire h"},
		{30, "PING", "expired h"},
	} {
		index, clockMs = index+1, clockMs+c.afterMs
		result, err := m.Apply(index, &Entry{ClockMs: clockMs, WallUs: clockMs * 1000,
			Batches: [][]byte{calls(c.call)}}, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Replies[0]) == 0 || result.Replies[0][0] == '-' {
			t.Fatalf("%s: %q", c.call, result.Replies[0])
		}
		var notified []string
		for _, e := range result.Events {
			event := strings.TrimPrefix(string(e.Channel), "__keyevent@0__:")
			notified = append(notified, event+" "+string(e.Payload))
		}
		if got := strings.Join(notified, ","); got != c.want {
			t.Errorf("%s after %d ms: notified of %q, want %q", c.call, c.afterMs, got, c.want)
		}
	}
}
