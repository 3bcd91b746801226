package models

import (
	"fmt"
	"slices"
	"strings"
)

// Violation is how a model gets from its first state to one that breaks a promise.
type Violation struct {
	Err   error
	Steps []string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%v, after:\n\t%s", v.Err, strings.Join(v.Steps, "\n\t"))
}

// Explore visits each state that can be reached from first, the nearest first. States with the same
// key are one. steps calls yield for all that can happen next, with its name, and with an error if
// that breaks a promise. It returns how many states there are, and the shortest way to a broken
// promise, if there is one.
func Explore[S any, K comparable](first S, key func(*S) K,
	steps func(s *S, yield func(name string, next *S, err error))) (states int, v *Violation) {
	type from struct {
		state  int
		action string
	}
	order, came, seen := []S{first}, []from{{}}, map[K]struct{}{key(&first): {}}
	for at := 0; at < len(order) && v == nil; at++ {
		s := order[at]
		steps(&s, func(name string, next *S, err error) {
			if err != nil && v == nil {
				v = &Violation{Err: err, Steps: []string{name}}
				for i := at; i > 0; i = came[i].state {
					v.Steps = append(v.Steps, came[i].action)
				}
				slices.Reverse(v.Steps)
			}
			k := key(next)
			if _, again := seen[k]; !again {
				seen[k] = struct{}{}
				order, came = append(order, *next), append(came, from{at, name})
			}
		})
	}
	return len(order), v
}
