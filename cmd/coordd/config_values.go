// Setters of options by the form of the value.

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func setString(field func(*config) *string) func(*config, string) error {
	return func(c *config, v string) error {
		if v == "" {
			return errors.New("must not be empty")
		}
		*field(c) = v
		return nil
	}
}

func setAny(field func(*config) *string) func(*config, string) error {
	return func(c *config, v string) error {
		*field(c) = v
		return nil
	}
}

func setChoice(field func(*config) *string, choices ...string) func(*config, string) error {
	return func(c *config, v string) error {
		if !slices.Contains(choices, v) {
			return fmt.Errorf("must be one of %s", strings.Join(choices, ", "))
		}
		*field(c) = v
		return nil
	}
}

func setNumber(assign func(*config, int), least int) func(*config, string) error {
	return func(c *config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < least {
			return fmt.Errorf("must be an integer, %d or more", least)
		}
		assign(c, n)
		return nil
	}
}

func setDuration(field func(*config) *time.Duration, least time.Duration) func(*config,
	string) error {
	return func(c *config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least {
			return fmt.Errorf("must be a duration such as 400ms or 2s, %v or more", least)
		}
		*field(c) = d
		return nil
	}
}

func setYesNo(field func(*config) *bool) func(*config, string) error {
	return func(c *config, v string) error {
		if v != "yes" && v != "no" {
			return errors.New("must be yes or no")
		}
		*field(c) = v == "yes"
		return nil
	}
}
