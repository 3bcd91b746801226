// Command sbom prints the software bill of materials of a Go binary: the modules that it was built
// from, which the Go linker has recorded in it, as CycloneDX 1.5. Equal binaries have equal bills.
//
//	go run ./deploy/sbom BINARY VERSION TIME
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
)

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "sbom BINARY VERSION TIME")
		os.Exit(2)
	}
	info, err := buildinfo.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(billOf(info, os.Args[2], os.Args[3])); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func billOf(info *debug.BuildInfo, version, timestamp string) bill {
	b := bill{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{timestamp,
		of("application", info.Main.Path, version)}}
	// Go's own library is a part of every binary
	b.Components = append(b.Components, of("library", "std", info.GoVersion))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, of("library", m.Path, m.Version))
	}
	own := dependency{Ref: b.Metadata.Component.Ref}
	for _, c := range b.Components {
		own.DependsOn = append(own.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{own}
	return b
}

func of(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + version
	return component{kind, purl, path, version, purl}
}
