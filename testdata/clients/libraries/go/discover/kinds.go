package main

// This file holds the clients. They use TLS, and a user, if the environment has them.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// client is what the program does with a library.
type client struct {
	module string // of the library
	// setNX is SET NX PX. get returns an empty string if there is no key. script runs a shared
	// script with one key. role is only for clients that have one leader to themselves.
	setNX  func(ctx context.Context, key, value string, lease time.Duration) (bool, error)
	set    func(ctx context.Context, key, value string) error
	get    func(ctx context.Context, key string) (string, error)
	fence  func(ctx context.Context, key string) (int64, error)
	script func(ctx context.Context, name, key string, args ...string) (int64, error)
	role   func(ctx context.Context) (string, error)
	close  func()
}

var user, password = os.Getenv("COORDD_USER"), os.Getenv("COORDD_PASSWORD")

// kinds are the clients. Those of Redis Cluster are not asked for the role: they may ask any node.
var kinds = map[string]func(addrs []string) (client, error){
	// By itself it looks for the master again once a minute, unless it is told MOVED, and tries to
	// reach a dead one until then: with Redis Cluster as here.
	"go-redis-cluster": func(addrs []string) (client, error) {
		return goRedis(redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: user,
			Password: password, Dialer: dial, ClusterStateReloadInterval: time.Second}))
	},
	"go-redis-sentinel": func(addrs []string) (client, error) {
		return goRedis(redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster",
			SentinelAddrs: addrs, Username: user, Password: password, SentinelUsername: user,
			SentinelPassword: password, Dialer: dial}))
	},
	"rueidis-cluster": func(addrs []string) (client, error) {
		return ofRueidis(rueidis.ClientOption{InitAddress: addrs})
	},
	"rueidis-sentinel": func(addrs []string) (client, error) {
		return ofRueidis(rueidis.ClientOption{InitAddress: addrs,
			Sentinel: rueidis.SentinelOption{MasterSet: "mymaster", Username: user,
				Password: password}})
	},
	// It is given one node alone, and follows REDIRECT.
	"rueidis-redirect": func(addrs []string) (client, error) {
		return ofRueidis(rueidis.ClientOption{InitAddress: addrs[:1],
			Standalone: rueidis.StandaloneOption{EnableRedirect: true}})
	},
}

// dial connects to a node. It reads the certificates each time: they may have been replaced.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	ca := os.Getenv("COORDD_TLS_CA")
	if ca == "" {
		return d.DialContext(ctx, network, addr)
	}
	authorities, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(os.Getenv("COORDD_TLS_CERT"), os.Getenv("COORDD_TLS_KEY"))
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	cfg.RootCAs.AppendCertsFromPEM(authorities)
	return (&tls.Dialer{NetDialer: &d, Config: cfg}).DialContext(ctx, network, addr)
}

// source returns a shared script. The program runs at the top of the repository.
func source(name string) string {
	text, err := os.ReadFile("testdata/clients/lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

func goRedis(c redis.UniversalClient) (client, error) {
	return client{
		module: "github.com/redis/go-redis/v9",
		setNX: func(ctx context.Context, key, value string, lease time.Duration) (bool, error) {
			err := c.SetArgs(ctx, key, value, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
			if errors.Is(err, redis.Nil) {
				return false, nil
			}
			return err == nil, err
		},
		set: func(ctx context.Context, key, value string) error {
			return c.Set(ctx, key, value, 0).Err()
		},
		get: func(ctx context.Context, key string) (string, error) {
			v, err := c.Get(ctx, key).Result()
			if errors.Is(err, redis.Nil) {
				return "", nil
			}
			return v, err
		},
		fence: func(ctx context.Context, key string) (int64, error) {
			return c.Do(ctx, "FENCE", key).Int64()
		},
		script: func(ctx context.Context, name, key string, args ...string) (int64, error) {
			return redis.NewScript(source(name)).Run(ctx, c, []string{key}, args).Int64()
		},
		role: func(ctx context.Context) (string, error) {
			words, err := c.Do(ctx, "ROLE").Slice()
			if err != nil {
				return "", err
			}
			return fmt.Sprint(words[0]), nil
		},
		close: func() { _ = c.Close() },
	}, nil
}

func ofRueidis(o rueidis.ClientOption) (client, error) {
	o.Username, o.Password = user, password
	o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn,
		error) {
		return dial(ctx, "tcp", addr)
	}
	c, err := rueidis.NewClient(o)
	return client{
		module: "github.com/redis/rueidis",
		setNX: func(ctx context.Context, key, value string, lease time.Duration) (bool, error) {
			err := c.Do(ctx, c.B().Set().Key(key).Value(value).Nx().Px(lease).Build()).Error()
			if rueidis.IsRedisNil(err) {
				return false, nil
			}
			return err == nil, err
		},
		set: func(ctx context.Context, key, value string) error {
			return c.Do(ctx, c.B().Set().Key(key).Value(value).Build()).Error()
		},
		get: func(ctx context.Context, key string) (string, error) {
			v, err := c.Do(ctx, c.B().Get().Key(key).Build()).ToString()
			if rueidis.IsRedisNil(err) {
				return "", nil
			}
			return v, err
		},
		fence: func(ctx context.Context, key string) (int64, error) {
			return c.Do(ctx, c.B().Arbitrary("FENCE").Keys(key).Build()).AsInt64()
		},
		script: func(ctx context.Context, name, key string, args ...string) (int64, error) {
			return rueidis.NewLuaScript(source(name)).Exec(ctx, c, []string{key}, args).AsInt64()
		},
		role: func(ctx context.Context) (string, error) {
			words, err := c.Do(ctx, c.B().Role().Build()).ToArray()
			if err != nil {
				return "", err
			}
			return words[0].ToString()
		},
		close: func() { c.Close() },
	}, err
}
