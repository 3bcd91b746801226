// EXISTS, TOUCH and TYPE, and FENCE, which returns the revision that created a key.

package commands

import "github.com/coordd/coordd/commands/keyspace"

func existsCommand(x *Call) error {
	n := int64(0)
	for _, key := range x.Args[1:] {
		if x.find(key) != nil {
			n++
		}
	}
	x.Out.Int(n)
	return nil
}

func typeCommand(x *Call) error {
	kind := keyspace.Kind(0)
	if e := x.find(x.Args[1]); e != nil {
		kind = e.Kind()
	}
	x.Out.Status(kind.String())
	return nil
}

func fenceCommand(x *Call) error {
	if created := x.DB().Creation(x.Args[1]); created != 0 {
		x.Out.Int(int64(created))
		return nil
	}
	x.Out.Null()
	return nil
}
