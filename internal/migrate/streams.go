// Copies streams: entries, counters, groups, consumers and pending entries.

package migrate

import (
	"context"
	"fmt"
	"math"
	"strings"
)

const (
	streamPage = 100 // entries of a stream, or pending ones, that are read at a time
	// releasedIdle is the idle time of a pending entry that no consumer owns: XNACK released it
	releasedIdle = -1
)

func (r *run) streamPieces(ctx context.Context, it *item, t *temp) error {
	info, err := r.askStream(ctx, "XINFO", "STREAM", it.key)
	if err != nil {
		return err
	}
	fields := pairs(info)
	last := text(fields["last-generated-id"])
	// A stream can exist without entries: creating a group creates it.
	if err := t.put(ctx, []any{"XGROUP", "CREATE", theKey, tempPrefix, "0", "MKSTREAM"},
		[]any{"XGROUP", "DESTROY", theKey, tempPrefix}); err != nil {
		return err
	}
	if err := r.streamEntries(ctx, it.key, last, t); err != nil {
		return err
	}
	setID := []any{"XSETID", theKey, last}
	if added, ok := fields["entries-added"]; ok { // since Redis 7
		setID = append(setID, "ENTRIESADDED", added, "MAXDELETEDID",
			text(fields["max-deleted-entry-id"]))
	}
	if err := t.put(ctx, setID); err != nil {
		return err
	}
	if cmd := producersConfig(fields); cmd != nil {
		if err := t.put(ctx, cmd); err != nil {
			return err
		}
	}
	groups, err := r.askStream(ctx, "XINFO", "GROUPS", it.key)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if err := r.streamGroup(ctx, it.key, pairs(g), t); err != nil {
			return err
		}
	}
	return nil
}

// producersConfig returns what says how long a stream remembers the ids of its producers, and how
// many; nil if that is as usual, or the source does not know it. Nothing tells the ids.
func producersConfig(fields map[string]any) []any {
	const usual = 100
	seconds, since := fields["idmp-duration"].(int64) // since Redis 8.6
	most, _ := fields["idmp-maxsize"].(int64)
	if !since || seconds == usual && most == usual {
		return nil
	}
	return []any{"XCFGSET", theKey, "IDMP-DURATION", seconds, "IDMP-MAXSIZE", most}
}

// askStream is askList for a stream that may no longer exist.
func (r *run) askStream(ctx context.Context, words ...any) ([]any, error) {
	list, err := r.askList(ctx, words...)
	if err != nil && isReply(err) && strings.Contains(err.Error(), "no such key") {
		return nil, errVanished
	}
	return list, err
}

// streamEntries copies the entries up to the id last: later ones came after the counters were read.
func (r *run) streamEntries(ctx context.Context, key, last string, t *temp) error {
	for from := "-"; ; {
		list, err := r.askList(ctx, "XRANGE", key, from, last, "COUNT", streamPage)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		var cmds [][]any
		for _, e := range list {
			entry, _ := e.([]any)
			if len(entry) != 2 {
				return fmt.Errorf("reading from %s: unexpected form of a stream entry",
					r.cfg.From.Addr)
			}
			words, _ := entry[1].([]any)
			cmds = append(cmds, append([]any{"XADD", theKey, entry[0]}, words...))
			from = after(text(entry[0]))
		}
		if err := t.put(ctx, cmds...); err != nil {
			return err
		}
		if from == "" || len(list) < streamPage {
			return nil
		}
	}
}

// after returns the next larger id, "" if there is none. Not all sources have exclusive ranges.
func after(id string) string {
	var ms, seq uint64
	if _, err := fmt.Sscanf(id, "%d-%d", &ms, &seq); err != nil {
		return ""
	}
	switch {
	case seq < math.MaxUint64:
		return fmt.Sprintf("%d-%d", ms, seq+1)
	case ms < math.MaxUint64:
		return fmt.Sprintf("%d-0", ms+1)
	}
	return ""
}

// streamGroup copies a group with its consumers and pending entries.
func (r *run) streamGroup(ctx context.Context, key string, group map[string]any, t *temp) error {
	name := text(group["name"])
	create := []any{"XGROUP", "CREATE", theKey, name, text(group["last-delivered-id"])}
	if n, ok := group["entries-read"].(int64); ok {
		create = append(create, "ENTRIESREAD", n)
	}
	cmds := [][]any{create}
	consumers, err := r.askStream(ctx, "XINFO", "CONSUMERS", key, name)
	if err != nil {
		return err
	}
	for _, c := range consumers {
		cmds = append(cmds, []any{"XGROUP", "CREATECONSUMER", theKey, name, text(pairs(c)["name"])})
	}
	if err := t.put(ctx, cmds...); err != nil {
		return err
	}
	for from := "-"; from != ""; {
		list, err := r.askList(ctx, "XPENDING", key, name, from, "+", streamPage)
		if err != nil {
			return err
		}
		var claims [][]any
		for _, p := range list {
			e, _ := p.([]any)
			if len(e) != 4 {
				return fmt.Errorf("reading from %s: unexpected form of a pending entry",
					r.cfg.From.Addr)
			}
			claim := []any{"XCLAIM", theKey, name, e[1], 0, e[0], "IDLE", e[2], "RETRYCOUNT", e[3],
				"FORCE", "JUSTID"}
			if e[2] == int64(releasedIdle) {
				claim = []any{"XNACK", theKey, name, "FAIL", "IDS", 1, e[0], "RETRYCOUNT", e[3],
					"FORCE"}
			}
			claims = append(claims, claim)
			from = after(text(e[0]))
		}
		if len(claims) > 0 {
			replies, err := t.putAll(ctx, claims...)
			if err != nil {
				return err
			}
			for _, ids := range replies {
				if l, ok := ids.([]any); ok && len(l) == 0 || ids == int64(0) {
					// FORCE adds no pending entry for a message that the stream lacks.
					r.report.Pending++
				}
			}
		}
		if len(list) < streamPage {
			return nil
		}
	}
	return nil
}

// pairs turns a list of names and values into a map.
func pairs(v any) map[string]any {
	list, _ := v.([]any)
	m := map[string]any{}
	for i := 0; i+1 < len(list); i += 2 {
		m[text(list[i])] = list[i+1]
	}
	return m
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
