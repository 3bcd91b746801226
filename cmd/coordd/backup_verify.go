// coordd backup verify: loads a backup as a restore would, and shows what it holds.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm"
)

// contents is what a backup holds.
type contents struct {
	File      string         `json:"file"`
	Bytes     int64          `json:"bytes"`
	Keys      int            `json:"keys"`
	Types     map[string]int `json:"types"`
	Volatile  int            `json:"keysWithTTL"`
	Scripts   int            `json:"scripts"`
	Libraries int            `json:"functionLibraries"`
	Users     int            `json:"users"`
	Level     uint64         `json:"featureLevel"`
	Known     uint64         `json:"knownFeatureLevel"`
	Epoch     uint64         `json:"epoch"`
	Index     uint64         `json:"logIndex"`
	// LastWrite is by the cluster's time of day; nil if the file does not hold it.
	LastWrite *time.Time `json:"lastWrite,omitempty"`
	Written   time.Time  `json:"fileWritten"`
}

func verifyBackup(ctx context.Context, target string, asJSON bool, c console) error {
	m, f, err := readBackup(ctx, target, c)
	if err != nil {
		return fmt.Errorf("%s cannot be restored: %w", shownStore(target), err)
	}
	held := contentsOf(m)
	held.File, held.Bytes, held.Written = target, f.Bytes, f.Written
	if asJSON {
		return json.NewEncoder(c.stdout).Encode(held)
	}
	return held.print(c.stdout, time.Now())
}

func contentsOf(m *fsm.Machine) contents {
	has := m.Stats()
	held := contents{Types: m.CountTypes(), Scripts: has.Scripts, Libraries: has.Libraries,
		Users: m.Users().Len(), Level: m.Level(), Known: commands.FeatureLevel, Epoch: m.Epoch(),
		Index: m.Index()}
	for _, db := range has.Databases {
		held.Keys += db.Keys
		held.Volatile += db.Volatile
	}
	if us := m.NewestUs(); us > 0 {
		at := time.UnixMicro(us + m.ShiftMs()*1000).UTC()
		held.LastWrite = &at
	}
	return held
}

func (h *contents) print(w io.Writer, now time.Time) error {
	age := func(at time.Time) string {
		return fmt.Sprintf("%s, %s ago", at.UTC().Format(time.DateTime+" MST"),
			spanText(max(now.Sub(at), 0)))
	}
	types := make([]string, 0, len(h.Types))
	for _, name := range slices.Sorted(maps.Keys(h.Types)) {
		types = append(types, fmt.Sprintf("%d %s", h.Types[name], name))
	}
	lastWrite := "not in a file of this level"
	if h.LastWrite != nil {
		lastWrite = age(*h.LastWrite)
	}
	fmt.Fprintf(w, "%s is complete and can be restored\n", h.File)
	t := newTable(w)
	for _, row := range [][2]string{
		{"size", byteText(h.Bytes)},
		{"keys", fmt.Sprintf("%d, %d of them with a TTL", h.Keys, h.Volatile)},
		{"types", strings.Join(types, ", ")},
		{"scripts", fmt.Sprintf("%d, and %d function libraries", h.Scripts, h.Libraries)},
		{"users", fmt.Sprint(h.Users)},
		{"feature level", fmt.Sprintf("%d; this release knows levels up to %d", h.Level, h.Known)},
		{"cluster", fmt.Sprintf("epoch %d, log index %d", h.Epoch, h.Index)},
		{"last write", lastWrite},
		{"file written", age(h.Written)},
	} {
		if row[1] != "" {
			fmt.Fprintf(t, "  %s\t%s\n", row[0], row[1])
		}
	}
	return t.Flush()
}
