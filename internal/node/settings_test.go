package node

import (
	"strconv"
	"strings"
	"testing"
)

// TestSettingsOfAllNodesAreCurrent changes what all nodes share through one node, and asks another
// as soon as that is acknowledged.
func TestSettingsOfAllNodesAreCurrent(t *testing.T) {
	nodes, _, clients := startThree(t)
	ctx := t.Context()
	classes := []string{"", "AK"}
	for i := range 60 {
		by, of := clients[i%3], clients[(i+1)%3]
		limit, events := strconv.Itoa((i+1)<<30), classes[i%2]
		if err := by.ConfigSet(ctx, "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
		if is := of.ConfigGet(ctx, "maxm*").Val()["maxmemory"]; is != limit {
			t.Errorf("maxmemory is %s, and %s was set", is, limit)
		}
		if err := by.ConfigSet(ctx, "notify-keyspace-events", events).Err(); err != nil {
			t.Fatal(err)
		}
		const name = "notify-keyspace-events"
		if is := of.ConfigGet(ctx, name).Val()[name]; is != events {
			t.Errorf("events are %q, and %q was set", is, events)
		}
		user := "user" + strconv.Itoa(i)
		if err := by.ACLSetUser(ctx, user, "on", "nopass").Err(); err != nil {
			t.Fatal(err)
		}
		if is := of.ACLUsers(ctx).Val(); !strings.Contains(strings.Join(is, " ")+" ", user+" ") {
			t.Errorf("%s is missing in %s", user, is)
		}
	}
	if err := clients[0].ConfigSet(ctx, "coordd-request-work", "3").Err(); err != nil {
		t.Fatal(err)
	}
	if v := clients[1].ConfigGet(ctx, "coordd-request-work").Val(); len(v) != 1 ||
		v["coordd-request-work"] != "3" {
		t.Error(v)
	}
	for _, wrong := range []string{"0", "11", "x", "2.5", ""} {
		if err := clients[0].ConfigSet(ctx, "coordd-request-work", wrong).Err(); err == nil ||
			!strings.Contains(err.Error(), "between 1 and 10") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if v := clients[1].InfoMap(ctx, "coordd").Item("Coordd", "request_work"); v != "3" {
		t.Error("INFO:", v)
	}
	old := clients[2].Conn() // without a leader nobody knows what was acknowledged
	defer old.Close()
	if err := old.ReadOnly(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes[:2] {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := clients[2].ConfigGet(ctx, "maxmemory").Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
		t.Error("without a leader:", err)
	}
	if v := clients[2].ConfigGet(ctx, "save"); v.Err() != nil {
		t.Error("of the node's own:", v.Err())
	}
	if v := old.ConfigGet(ctx, "maxmemory"); v.Err() != nil || v.Val()["maxmemory"] == "" {
		t.Error("of a client that takes what is old:", v)
	}
}
