// Options that protect a node from its clients.

package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/audit"
	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/locks"
	"github.com/coordd/coordd/internal/tracing"
	"github.com/coordd/coordd/server"
)

func setSeconds(field func(*config) *time.Duration) func(*config, string) error {
	return func(c *config, v string) error {
		err := setDuration(field, 0)(c, v)
		if err == nil && *field(c)%time.Second != 0 {
			err = errors.New("must be whole seconds")
		}
		return err
	}
}

// secondsText returns a duration as parameters of CONFIG have it.
func secondsText(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// fromSeconds returns the duration of such a text.
func fromSeconds(v string) string { return v + "s" }

func setOutputLimits(c *config, v string) (err error) {
	c.OutputLimits, err = server.ParseOutputLimits(v)
	if err != nil {
		return errors.New("must be class hard soft seconds …, such as \"pubsub 32mb 8mb 60\"")
	}
	return nil
}

func setRate(field func(*config) *server.Rate) func(*config, string) error {
	return func(c *config, v string) error {
		r, err := server.ParseRate(v)
		if err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "argument ")) // CONFIG SET's word
		}
		*field(c) = r
		return nil
	}
}

func setAddresses(field func(*config) *halfopen.Addresses) func(*config, string) error {
	return func(c *config, v string) (err error) {
		*field(c), err = halfopen.ParseAddresses(v)
		return err
	}
}

func setProtected(c *config, v string) error {
	var mode string
	err := setChoice(func(*config) *string { return &mode }, "yes", "no")(c, v)
	c.Unprotected = mode == "no"
	return err
}

func setMaxMemory(c *config, v string) error {
	n, err := server.ParseMaxMemory(v)
	if err != nil {
		return errors.New("must be a size such as 2gb")
	}
	c.FirstMaxMemory = n
	return nil
}

func setClientMemory(c *config, v string) error {
	m, err := server.ParseClientMemory(v)
	if err != nil {
		return errors.New("must be a size such as 512mb or a percentage such as 10%")
	}
	c.MaxClientMemory = m
	return nil
}

func setTraces(c *config, v string) error {
	if v != "" {
		if err := tracing.CheckURL(v); err != nil {
			return err
		}
	}
	c.Tracing.URL = v
	return nil
}

func setSyslog(c *config, v string) error {
	c.Audit.Syslog = v
	if v == "" {
		return nil
	}
	return audit.CheckSyslog(v)
}

func setSample(c *config, v string) error {
	share, err := strconv.ParseFloat(v, 64)
	if err != nil || !(share > 0 && share <= 1) {
		return errors.New("must be above 0 and at most 1")
	}
	c.Tracing.Sample = share
	return nil
}

func setLockLabels(c *config, v string) error {
	if _, err := locks.ParseRules(v); err != nil {
		return err
	}
	c.LockLabels = v
	return nil
}
