package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coordd/cluster"
)

// Names are what Lookup resolves: host:port, or the name of SRV records, which begins with an
// underscore: _peer._tcp.coordd.example.
type Names []string

// Parse reads names separated by commas.
func Parse(text string) (Names, error) {
	var names Names
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if !isSRV(name) {
			host, port, err := net.SplitHostPort(name)
			if err != nil || host == "" ||
				cluster.CheckAddress(net.JoinHostPort(host, "1")) != nil {
				return nil, fmt.Errorf("%q must be host:port, or the name of SRV records, which "+
					"begins with an underscore", name)
			}
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return nil, fmt.Errorf("%q: the port must be from 1 to 65535", name)
			}
		}
		names = append(names, name)
	}
	return names, nil
}

func isSRV(name string) bool {
	return strings.HasPrefix(name, "_") && !strings.Contains(name, ":")
}

// NewResolver returns the system's resolver, or one that asks the DNS server at host:port alone.
func NewResolver(server string) *net.Resolver {
	if server == "" {
		return net.DefaultResolver
	}
	return &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server)
		}}
}

// Lookup returns the addresses behind the names, as host:port with an IP address for a host,
// sorted, each once. A name that does not exist has none: that of a service without pods. Any other
// failure fails Lookup, since addresses would be missing.
func Lookup(ctx context.Context, r *net.Resolver, names Names) ([]string, error) {
	var addrs []string
	for _, name := range names {
		if !isSRV(name) {
			host, port, _ := net.SplitHostPort(name)
			found, err := lookupHost(ctx, r, host, port)
			if err != nil {
				return nil, err
			}
			addrs = append(addrs, found...)
			continue
		}
		_, records, err := r.LookupSRV(ctx, "", "", name)
		if err != nil && !isNotFound(err) {
			return nil, err
		}
		for _, srv := range records {
			found, err := lookupHost(ctx, r, srv.Target, strconv.Itoa(int(srv.Port)))
			if err != nil {
				return nil, err
			}
			addrs = append(addrs, found...)
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), nil
}

func lookupHost(ctx context.Context, r *net.Resolver, host, port string) (addrs []string,
	err error) {
	ips, err := r.LookupHost(ctx, host)
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	for _, ip := range ips {
		addrs = append(addrs, net.JoinHostPort(ip, port))
	}
	return addrs, nil
}

func isNotFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}
