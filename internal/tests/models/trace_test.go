package models

import (
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/cluster/trace"
)

// sound is what three nodes record that elect n1, which logs an entry, and reads.
func sound() []trace.Event {
	var events []trace.Event
	for _, n := range []string{"n1", "n2", "n3"} {
		events = append(events, trace.Event{Node: n, Kind: trace.Starts})
	}
	each := func(kind trace.Kind, e trace.Event) {
		for _, n := range []string{"n1", "n2"} {
			e.Node, e.Kind = n, kind
			events = append(events, e)
		}
	}
	each(trace.Enters, trace.Event{Term: 1})
	each(trace.Votes, trace.Event{Term: 1})
	return append(events,
		trace.Event{Node: "n2", Kind: trace.Grants, Peer: "n1", Term: 1},
		trace.Event{Node: "n1", Kind: trace.Leads, Term: 1},
		trace.Event{Node: "n1", Kind: trace.Logs, First: 1, Index: 2, Term: 1},
		trace.Event{Node: "n2", Kind: trace.Stores, First: 1, Index: 2, Term: 1},
		trace.Event{Node: "n2", Kind: trace.Confirms, Index: 2},
		trace.Event{Node: "n1", Kind: trace.Stores, First: 1, Index: 2, Term: 1},
		trace.Event{Node: "n1", Kind: trace.Applies, Index: 2, Term: 1, Now: 1},
		trace.Event{Node: "n1", Kind: trace.Tells, Index: 2},
		trace.Event{Node: "n2", Kind: trace.Applies, Index: 2, Term: 1, Now: 1},
		trace.Event{Node: "n1", Kind: trace.Asks, Question: 7, Term: 1},
		trace.Event{Node: "n1", Kind: trace.Answered, Peer: "n2", Question: 7, Term: 1},
		trace.Event{Node: "n1", Kind: trace.Confirmed, Question: 7, Need: 1},
		trace.Event{Node: "n1", Kind: trace.Reads, Question: 7, Index: 2, Term: 1},
		trace.Event{Node: "n3", Kind: trace.Enters, Term: 2},
		trace.Event{Node: "n3", Kind: trace.Votes, Term: 2},
		trace.Event{Node: "n3", Kind: trace.Stores, First: 1, Index: 2, Term: 1},
		trace.Event{Node: "n2", Kind: trace.Enters, Term: 2},
		trace.Event{Node: "n2", Kind: trace.Votes, Term: 2},
		trace.Event{Node: "n2", Kind: trace.Grants, Peer: "n3", Term: 2, Index: 2},
		trace.Event{Node: "n3", Kind: trace.Leads, Term: 2})
}

func check(events []trace.Event) error {
	t := NewTrace()
	for _, e := range events {
		if err := t.Step(e); err != nil {
			return err
		}
	}
	return nil
}

// TestTraces: each kind of event that is left out, or that says what breaks a rule, is found.
func TestTraces(t *testing.T) {
	if err := check(sound()); err != nil {
		t.Fatal(err)
	}
	undone := append(sound(), trace.Event{Node: "n4", Kind: trace.Enters, Term: 1},
		trace.Event{Node: "n4", Kind: trace.Starts, Term: 1},
		trace.Event{Node: "n4", Kind: trace.Enters})
	if err := check(undone); err != nil {
		t.Fatalf("a founding that is undone: %v", err)
	}
	at := func(node string, kind trace.Kind) int {
		return slices.IndexFunc(sound(), func(e trace.Event) bool {
			return e.Node == node && e.Kind == kind
		})
	}
	without := func(node string, kind trace.Kind) []trace.Event {
		i := at(node, kind)
		return slices.Delete(sound(), i, i+1)
	}
	with := func(node string, kind trace.Kind, change func(e *trace.Event)) []trace.Event {
		events := sound()
		change(&events[at(node, kind)])
		return events
	}
	then := func(more ...trace.Event) []trace.Event { return append(sound(), more...) }
	behind := func(e *trace.Event) { e.Index-- }
	for name, c := range map[string]struct {
		events []trace.Event
		want   string
	}{
		"a vote that is on no disk": {without("n2", trace.Votes), string(TermBeforeVote)},
		"a term that is on no disk": {without("n2", trace.Enters), string(TermBeforeVote)},
		"an answer before the disk": {without("n2", trace.Stores), string(FollowersWriteFirst)},
		"told before the disk":      {without("n1", trace.Stores), string(AppliesWhatIsDurable)},
		"a read without answers":    {without("n1", trace.Answered), string(AnswersToThisQuestion)},
		"a read that is unsure":     {without("n1", trace.Confirmed), string(AsksAMajority)},
		"a read that did not begin": {without("n1", trace.Asks), "it has not asked"},
		"a leader without an entry": {without("n3", trace.Stores), "leads without entry 2"},
		"an answer to an earlier question": {with("n1", trace.Answered,
			func(e *trace.Event) { e.Question-- }), string(AnswersToThisQuestion)},
		"an answer of a later term": {with("n1", trace.Answered,
			func(e *trace.Event) { e.Term++ }), string(AnswersToThisQuestion)},
		"a stale read": {with("n1", trace.Reads, behind), "was applied before the read began"},
		"a read of an earlier term's end": {with("n1", trace.Asks,
			func(e *trace.Event) { e.Term++ }), string(ReadsAfterBarrier)},
		"other entries": {with("n2", trace.Applies, func(e *trace.Event) { e.Term++ }),
			"others have applied"},
		"another entry on the disk": {with("n1", trace.Stores, func(e *trace.Event) { e.Term++ }),
			"it was logged as of"},
		"told too early": {then(trace.Event{Node: "n2", Kind: trace.Tells, Index: 3}),
			string(TellsWhatIsDurable)},
		"two leaders": {then(trace.Event{Node: "n2", Kind: trace.Leads, Term: 2}),
			"n3 leads in that term"},
		"two votes": {then(trace.Event{Node: "n2", Kind: trace.Grants, Peer: "n1", Term: 2}),
			string(VotesOnce)},
		"a term that falls": {then(trace.Event{Node: "n2", Kind: trace.Enters, Term: 1}),
			string(TermBeforeVote)},
		"a term that a restart forgets": {then(trace.Event{Node: "n2", Kind: trace.Starts, Index: 2,
			Term: 1}), string(TermBeforeVote)},
		"a vote of who has lost its log": {then(
			trace.Event{Node: "n2", Kind: trace.Starts, Index: 1, Term: 2, Now: 2},
			trace.Event{Node: "n2", Kind: trace.Enters, Term: 3},
			trace.Event{Node: "n2", Kind: trace.Votes, Term: 3},
			trace.Event{Node: "n2", Kind: trace.Grants, Peer: "n1", Term: 3, Index: 1}),
			"its disk ended with 2"},
		"a vote that a restart forgets": {then(trace.Event{Node: "n2", Kind: trace.Starts, Index: 2,
			Term: 2, Now: 1}), "its newest vote was in 2"},
		"a vote of who has lost its log twice": {then(
			trace.Event{Node: "n2", Kind: trace.Starts, Index: 1, Term: 2, Now: 2},
			trace.Event{Node: "n2", Kind: trace.Starts, Term: 2, Now: 2},
			trace.Event{Node: "n2", Kind: trace.Grants, Peer: "n3", Term: 2, Index: 1}),
			"its disk ended with 2"},
		"a batch on the disk before the one before": {then(
			trace.Event{Node: "n2", Kind: trace.Logs, First: 3, Index: 3, Term: 2},
			trace.Event{Node: "n2", Kind: trace.Logs, First: 4, Index: 4, Term: 2},
			trace.Event{Node: "n2", Kind: trace.Stores, First: 4, Index: 4, Term: 2},
			trace.Event{Node: "n2", Kind: trace.Confirms, Index: 4}), string(FollowersWriteFirst)},
		"another entry over one that was not cut": {then(
			trace.Event{Node: "n2", Kind: trace.Logs, First: 2, Index: 2, Term: 2}),
			"it was logged as of"},
		"a leader without a vote of its own": {without("n1", trace.Votes), string(TermBeforeVote)},
		"a leader that has voted for another": {slices.Insert(sound(), at("n3", trace.Stores),
			trace.Event{Node: "n3", Kind: trace.Grants, Peer: "n2", Term: 2}), string(VotesOnce)},
		"a leader that votes for another": {then(
			trace.Event{Node: "n3", Kind: trace.Grants, Peer: "n2", Term: 2, Index: 2}),
			string(VotesOnce)},
		"no kind": {then(trace.Event{Node: "n2", Kind: "x"}), "no model knows"},
	} {
		if err := check(c.events); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
