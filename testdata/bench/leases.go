package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// Holders with many leases, each with a key, which renew all of theirs with one call.
const (
	leaseHolders = 100
	leasesOfEach = 1000
	leaseTTL     = 30 * time.Second
	renewEach    = leaseTTL / 3
)

// renewals measures how much of a processor three nodes need for 100,000 leases that are renewed
// every ten seconds, in percent, beside what they need when nothing happens.
func renewals(s *servers, t *target) (o outcome, err error) {
	idle, err := idleNodes(s, t)
	if err != nil {
		return o, err
	}
	l, err := newLoop()
	if err != nil {
		return o, err
	}
	defer l.close()
	var renew []func()
	ready, renewed := 0, 0
	for i := range leaseHolders {
		c, err := l.dial(t.port)
		if err != nil {
			return o, err
		}
		var ids []string
		attached := 0
		c.reply = func(reply []byte) {
			c.mustSucceed(reply)
			switch {
			case len(ids) < leasesOfEach:
				ids = append(ids, string(reply[1:len(reply)-2]))
				if len(ids) == leasesOfEach {
					c.send(attach(i, ids))
				}
			case attached < leasesOfEach:
				if attached++; attached == leasesOfEach {
					ready++
				}
			default:
				renewed++
			}
		}
		var grants []byte
		for range leasesOfEach {
			grants = resp.AppendCommand(grants, "LEASE", "GRANT",
				strconv.FormatInt(leaseTTL.Milliseconds(), 10))
		}
		c.send(grants)
		renew = append(renew, func() {
			c.send(resp.AppendCommand(nil, append([]string{"LEASE", "KEEPALIVE"}, ids...)...))
		})
	}
	if err := l.run(func() bool { return ready == leaseHolders }); err != nil {
		return o, err
	}
	var next func(at time.Time, i int)
	next = func(at time.Time, i int) {
		l.at(at, func() {
			renew[i%leaseHolders]()
			next(at.Add(renewEach/leaseHolders), i+1)
		})
	}
	next(time.Now(), 0)
	used, err := busy(t, func() error { return l.runFor(2 * renewEach) })
	if err != nil {
		return o, err
	}
	if least := 2*leaseHolders - 2; renewed < least {
		return o, fmt.Errorf("%d of %d renewals were answered", renewed, least)
	}
	return outcome{value: 100*used - idle.value}, nil
}

// idleNodes measures how much of a processor all nodes together need when nothing happens, in
// percent.
func idleNodes(_ *servers, t *target) (outcome, error) {
	time.Sleep(settle)
	used, err := busy(t, func() error { time.Sleep(renewEach); return nil })
	return outcome{value: 100 * used}, err
}

// busy returns how many processors the servers' processes use meanwhile.
func busy(t *target, meanwhile func() error) (processors float64, err error) {
	began := time.Now()
	before, _ := t.cpu()
	err = meanwhile()
	after, _ := t.cpu()
	return (after - before).Seconds() / time.Since(began).Seconds(), err
}

// attach has each lease hold a key.
func attach(holder int, ids []string) (calls []byte) {
	for i, id := range ids {
		key := "leased:" + strconv.Itoa(holder*leasesOfEach+i)
		calls = resp.AppendCommand(calls, "SET", key, "owner", "NX", "LEASE", id)
	}
	return calls
}
