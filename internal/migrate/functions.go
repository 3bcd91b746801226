// Copies function libraries. Scripts cannot be copied: servers do not list them.

package migrate

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// functions copies the libraries. They belong to the server, not to a database.
func (r *run) functions(ctx context.Context) error {
	r.from, r.to = connect(r.cfg.From, 0, 2), connect(r.cfg.To, 0, -1)
	defer r.from.Close()
	defer r.to.Close()
	v, err := r.from.Do(ctx, "FUNCTION", "LIST", "WITHCODE").Result()
	switch {
	case err != nil && isReply(err) && strings.Contains(err.Error(), "unknown command"):
		return nil // a server without functions, before 7.0
	case err != nil && isReply(err):
		r.failLibrary("", err.Error())
		return nil
	case err != nil:
		return r.sourceError(err)
	}
	libraries, _ := v.([]any)
	for _, l := range libraries {
		said := pairs(l)
		if err := r.library(ctx, text(said["library_name"]),
			text(said["library_code"])); err != nil {
			return err
		}
	}
	return nil
}

// library loads a library into the target. It retries if the target did not load it, or may not
// have.
func (r *run) library(ctx context.Context, name, code string) error {
	words := []any{"FUNCTION", "LOAD", code}
	if r.cfg.Replace {
		words = []any{"FUNCTION", "LOAD", "REPLACE", code}
	}
	asked := false // an earlier attempt may have loaded it
	for start := time.Now(); ; {
		err := r.to.Do(ctx, words...).Err()
		switch {
		case err == nil:
			r.report.Libraries++
			return nil
		case !isReply(err):
			return r.targetError(err)
		case (notNow(err) || unknown(err)) && time.Since(start) > patience:
			return r.targetError(err)
		case notNow(err) || unknown(err):
			asked = asked || unknown(err)
		case strings.Contains(err.Error(), fmt.Sprintf("Library '%s' already exists", name)) &&
			asked:
			r.report.Libraries++
			return nil
		case strings.Contains(err.Error(), fmt.Sprintf("Library '%s' already exists", name)):
			r.report.LibrariesPresent++
			return nil
		default:
			r.failLibrary(name, err.Error())
			return nil
		}
		if err := rest(ctx); err != nil {
			return err
		}
	}
}

func (r *run) failLibrary(name, reason string) {
	r.report.LibraryFailures = append(r.report.LibraryFailures, Failure{Key: name, Reason: reason})
}
