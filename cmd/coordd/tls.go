// TLS of the subcommands that dial a server.

package main

import (
	"errors"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/coordd/coordd/internal/tlsconf"
)

// addTLS declares the flags that configure addresses of the form rediss://.
func addTLS(fs *pflag.FlagSet) *tlsconf.Files {
	f := &tlsconf.Files{}
	fs.StringVar(&f.CA, "tls-ca", "",
		"authorities of servers with an address rediss://host:port; default: the system's")
	fs.StringVar(&f.Cert, "tls-cert", "", "certificate to show them")
	fs.StringVar(&f.Key, "tls-key", "", "key of --tls-cert")
	return f
}

// useTLS has the servers with such an address use the files.
func useTLS(f *tlsconf.Files, servers ...*redis.Options) error {
	if *f == (tlsconf.Files{}) {
		return nil
	}
	used := false
	for _, o := range servers {
		if o.TLSConfig == nil {
			continue
		}
		c, err := f.Dial()
		if err != nil {
			return err
		}
		c.ServerName = o.TLSConfig.ServerName
		o.TLSConfig, used = c, true
	}
	if !used {
		return usageError{errors.New("--tls-ca, --tls-cert and --tls-key require an address " +
			"rediss://host:port")}
	}
	return nil
}
