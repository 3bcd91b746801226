// How a subcommand, or a node that joins, authenticates. A password is in a file or in the
// environment: everybody on the machine sees the command line.

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/coordd/coordd/internal/files"
)

// credentials are a user and a password, as flags and the environment name them.
type credentials struct {
	user, file         string
	userFlag, fileFlag string
	env                string // the variable that may hold the password
}

// addCredentials declares the flags for a user and for a file with the password.
func addCredentials(fs *pflag.FlagSet, userFlag, fileFlag, env string) *credentials {
	c := &credentials{userFlag: userFlag, fileFlag: fileFlag, env: env}
	fs.StringVar(&c.user, userFlag, "", "user to authenticate as; default: the default user")
	fs.StringVar(&c.file, fileFlag, "",
		"file with the password; "+env+" may hold the password instead")
	return c
}

// complete adds the credentials to the address of a server, which may name a user.
func (c *credentials) complete(o *redis.Options, getenv func(string) string) error {
	if o.Password != "" {
		return fmt.Errorf("a password on the command line is visible to others: use --%s or %s",
			c.fileFlag, c.env)
	}
	if c.user != "" {
		o.Username = c.user
	}
	var err error
	if o.Password, err = c.password(getenv); err != nil {
		return err
	}
	if o.Username != "" && o.Password == "" {
		return fmt.Errorf("a user needs a password: --%s or %s", c.fileFlag, c.env)
	}
	return nil
}

// server reads the address of a server, which is the value of a flag, and adds the credentials.
func (c *credentials) server(flag, text string, getenv func(string) string) (*redis.Options,
	error) {
	o, err := parseServer(text)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", flag, shown(text), err)
	}
	return o, c.complete(o, getenv)
}

// servers is server for several addresses, with commas.
func (c *credentials) servers(flag, texts string, getenv func(string) string) (
	all []*redis.Options, err error) {
	for text := range strings.SplitSeq(texts, ",") {
		o, err := c.server(flag, text, getenv)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// password returns the password in the file, or else in the environment.
func (c *credentials) password(getenv func(string) string) (string, error) {
	if c.file == "" {
		return getenv(c.env), nil
	}
	password, err := passwordIn(c.file)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", c.fileFlag, err)
	}
	return password, nil
}

// maxSecret bounds a file with a password or a key, in bytes.
const maxSecret = 64 << 10

// passwordIn returns the only line of a file.
func passwordIn(file string) (string, error) {
	text, err := files.Read(file, maxSecret)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case password == "":
		return "", fmt.Errorf("%s is empty", file)
	case strings.ContainsAny(password, "\r\n"):
		return "", errors.New(file + " has more than one line")
	}
	return password, nil
}
