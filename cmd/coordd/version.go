// coordd version: what this binary is.

package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/commands"
)

// version is set by the release build; the module's version is the default.
var version = ""

// build describes a binary.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"` // empty: built without the repository
	Time     string `json:"commit_time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // since the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// feature levels that it can run at
	OldestLevel uint64 `json:"oldest_feature_level"`
	NewestLevel uint64 `json:"newest_feature_level"`
}

func thisBuild() build {
	b := build{Version: versionText(), Go: runtime.Version(),
		Platform:    runtime.GOOS + "/" + runtime.GOARCH,
		OldestLevel: commands.LevelFirst, NewestLevel: commands.FeatureLevel}
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func newVersion(c console) *cobra.Command {
	cmd := &cobra.Command{Use: "version",
		Short: "Prints the version, the commit, Go's version and the feature levels"}
	asJSON := cmd.Flags().Bool("json", false, "print a JSON object")
	cmd.RunE = func(*cobra.Command, []string) error {
		b := thisBuild()
		if *asJSON {
			out := json.NewEncoder(c.stdout)
			out.SetIndent("", "  ")
			return out.Encode(b)
		}
		fmt.Fprintf(c.stdout, "coordd %s\n", b.Version)
		if b.Commit != "" {
			changed := ""
			if b.Modified {
				changed = ", modified"
			}
			fmt.Fprintf(c.stdout, "commit %s of %s%s\n", b.Commit, b.Time, changed)
		}
		_, err := fmt.Fprintf(c.stdout, "%s %s\nfeature levels %d to %d\n", b.Go, b.Platform,
			b.OldestLevel, b.NewestLevel)
		return err
	}
	return cmd
}
