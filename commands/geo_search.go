// GEOSEARCH, GEOSEARCHSTORE, and the older GEORADIUS in its four forms.

package commands

import (
	"math"
	"math/bits"

	"github.com/coordd/coordd/commands/geo"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/radix"
)

// Errors of searches.
const (
	errGeoMember   Error = "ERR could not decode requested zset member"
	errGeoRadius   Error = "ERR need numeric radius"
	errGeoNegative Error = "ERR radius cannot be negative"
	errGeoWidth    Error = "ERR need numeric width"
	errGeoHeight   Error = "ERR need numeric height"
	errGeoBox      Error = "ERR height or width cannot be negative"
	errGeoCount    Error = "ERR COUNT must be > 0"
	errGeoAny      Error = "ERR the ANY argument requires COUNT argument"
)

// geoForm is what the command's name determines.
type geoForm struct {
	key    int  // the argument that names the sorted set
	args   int  // where GEORADIUS has options; 0: all arguments are options
	stores bool // it may store, GEOSEARCHSTORE always
}

// Costs in units of Env.Work.
const (
	placedMember   = 6  // the place of a member, or its geohash
	measuredMember = 12 // the distance of a member
	boxedMember    = 28 // … of one that may be in a box
	foundMember    = 6  // a member that is a result
	orderedMember  = 24 // a result that is stored
)

// geoSearch is one call.
type geoSearch struct {
	geoForm
	set                           *keyspace.ZSet
	area                          geo.Area
	from, by                      geoChoice
	withDist, withHash, withPlace bool
	ordered, desc                 bool
	count                         int64 // 0: all
	any                           bool
	into                          []byte // the key to store in
	storing, storeDist            bool
}

// geoChoice is which of two options was given.
type geoChoice uint8

const (
	neither geoChoice = iota
	first
	second
)

// geosearch is the handler of all searches.
func geosearch(form geoForm) Handler {
	return func(x *Call) error {
		z, err := findZSet(x, x.Args[form.key])
		if err != nil {
			return err
		}
		s := geoSearch{geoForm: form, set: z}
		if err := s.parse(x); err != nil {
			return err
		}
		found := s.run(x)
		if s.storing {
			s.store(x, found)
		} else {
			s.reply(x, found)
		}
		return nil
	}
}

// parse parses the arguments, in Redis's order of checks.
func (s *geoSearch) parse(x *Call) error {
	options := s.args
	switch {
	case options == 0:
		options = s.key + 1
		if s.stores {
			s.into, s.storing = x.Args[1], true
		}
	case s.set.Len() > 0 || options > 5: // by member of a missing key, Redis looks at options alone
		if err := s.parseCircle(x, x.Args[2:options]); err != nil {
			return err
		}
	}
	for args := x.Args[options:]; len(args) > 0; {
		taken, err := s.parseOption(x, args)
		if err != nil {
			return err
		}
		args = args[taken:]
	}
	return s.check(x)
}

// parseCircle parses what GEORADIUS has before its options: a place or a member, a radius.
func (s *geoSearch) parseCircle(x *Call, args [][]byte) (err error) {
	at := len(args) - 2
	if at == 1 {
		s.area.Center, err = s.placeOf(args[0])
	} else {
		s.area.Center, err = parsePlace(x, args)
	}
	if err != nil {
		return err
	}
	return s.parseRadius(x, args[at:])
}

// placeOf returns the place of a member.
func (s *geoSearch) placeOf(member []byte) (geo.Place, error) {
	score, ok := s.set.Score(member)
	if !ok {
		return geo.Place{}, errGeoMember
	}
	return geo.PlaceOf(score), nil
}

// parseRadius parses a radius and its unit.
func (s *geoSearch) parseRadius(x *Call, args [][]byte) (err error) {
	x.spendNumber(len(args[0]))
	radius, ok := ParseFloat(args[0])
	switch {
	case !ok:
		return errGeoRadius
	case radius < 0:
		return errGeoNegative
	}
	s.area.Radius = radius
	s.area.Unit, err = parseUnit(args[1])
	return err
}

// parseBox parses width, height and their unit.
func (s *geoSearch) parseBox(x *Call, args [][]byte) (err error) {
	x.spendNumber(len(args[0]) + len(args[1]))
	var ok [2]bool
	s.area.Width, ok[0] = ParseFloat(args[0])
	s.area.Height, ok[1] = ParseFloat(args[1])
	switch {
	case !ok[0]:
		return errGeoWidth
	case !ok[1]:
		return errGeoHeight
	case s.area.Width < 0 || s.area.Height < 0:
		return errGeoBox
	}
	s.area.Box = true
	s.area.Unit, err = parseUnit(args[2])
	return err
}

// parseOption parses the option at the start of args and returns how many arguments it took.
func (s *geoSearch) parseOption(x *Call, args [][]byte) (taken int, err error) {
	more := len(args) - 1
	switch {
	case isWord(args[0], "WITHDIST"):
		s.withDist = true
	case isWord(args[0], "WITHHASH"):
		s.withHash = true
	case isWord(args[0], "WITHCOORD"):
		s.withPlace = true
	case isWord(args[0], "ANY"):
		s.any = true
	case isWord(args[0], "ASC"):
		s.ordered, s.desc = true, false
	case isWord(args[0], "DESC"):
		s.ordered, s.desc = true, true
	case more >= 1 && isWord(args[0], "COUNT"):
		var ok bool
		if s.count, ok = ParseInt(args[1]); !ok {
			return 0, ErrNotInteger
		}
		if s.count <= 0 {
			return 0, errGeoCount
		}
		return 2, nil
	case s.args == 0:
		return s.parseArea(x, args)
	case s.stores && more >= 1 && isWord(args[0], "STORE"):
		s.into, s.storing, s.storeDist = args[1], true, false
		return 2, nil
	case s.stores && more >= 1 && isWord(args[0], "STOREDIST"):
		s.into, s.storing, s.storeDist = args[1], true, true
		return 2, nil
	default:
		return 0, ErrSyntax
	}
	return 1, nil
}

// parseArea is parseOption for those that only GEOSEARCH and GEOSEARCHSTORE have.
func (s *geoSearch) parseArea(x *Call, args [][]byte) (taken int, err error) {
	more := len(args) - 1
	switch {
	case s.stores && isWord(args[0], "STOREDIST"):
		s.storeDist = true
		return 1, nil
	case more >= 1 && s.from != second && isWord(args[0], "FROMMEMBER"):
		s.from = first
		if s.set.Len() > 0 {
			s.area.Center, err = s.placeOf(args[1])
		}
		return 2, err
	case more >= 2 && s.from != first && isWord(args[0], "FROMLONLAT"):
		s.from = second
		s.area.Center, err = parsePlace(x, args[1:])
		return 3, err
	case more >= 2 && s.by != second && isWord(args[0], "BYRADIUS"):
		s.by = first
		return 3, s.parseRadius(x, args[1:])
	case more >= 3 && s.by != first && isWord(args[0], "BYBOX"):
		s.by = second
		return 4, s.parseBox(x, args[1:])
	}
	return 0, ErrSyntax
}

// check finds options that are missing or do not go together.
func (s *geoSearch) check(x *Call) error {
	search := s.args == 0
	switch {
	case s.storing && (s.withDist || s.withHash || s.withPlace):
		name := "STORE option in GEORADIUS"
		if search {
			name = "GEOSEARCHSTORE"
		}
		return Errorf("ERR %s is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
			name)
	case search && s.from == neither:
		return Errorf("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for %s",
			x.Args[0])
	case search && s.by == neither:
		return Errorf("ERR exactly one of BYRADIUS and BYBOX can be specified for %s", x.Args[0])
	case s.any && s.count == 0:
		return errGeoAny
	}
	return nil
}

// geoFound is a member in the area.
type geoFound struct {
	keyspace.Scored
	meters float64 // from the center
}

// run returns the members in the area, in order and within COUNT.
func (s *geoSearch) run(x *Call) []geoFound {
	if s.set.Len() == 0 {
		return nil
	}
	most := math.MaxInt
	if s.any {
		most = int(s.count)
	}
	var found []geoFound
	for _, r := range s.area.Ranges() {
		if len(found) < most {
			found = s.search(x, r, found, most)
		}
	}
	if s.ordered || (s.count > 0 && !s.any) {
		x.Spend(len(found) * sortedElement)
		radix.Keys(found, s.rank)
	}
	if s.count > 0 {
		found = found[:min(int64(len(found)), s.count)]
	}
	return found
}

// rank orders members by distance.
func (s *geoSearch) rank(m *geoFound) uint64 {
	if s.desc {
		return ^radix.Float(m.meters)
	}
	return radix.Float(m.meters)
}

// search appends the members within a range of scores that are in the area, until there are most.
func (s *geoSearch) search(x *Call, r geo.Range, found []geoFound, most int) []geoFound {
	z, cost := s.set, measuredMember
	if s.area.Box {
		cost = boxedMember
	}
	x.Spend(2 * bits.Len(uint(z.Len())))
	first := z.Seek(func(m keyspace.Scored) bool { return m.Score >= r.Min })
	if first == z.Len() {
		return found
	}
	z.Range(first, z.Len()-1, func(m keyspace.Scored) bool {
		if m.Score >= r.Max {
			return false
		}
		x.Spend(cost)
		if meters, within := s.area.Distance(geo.PlaceOf(m.Score)); within {
			x.Spend(foundMember)
			found = append(found, geoFound{m, meters})
		}
		return len(found) < most
	})
	return found
}

func (s *geoSearch) reply(x *Call, found []geoFound) {
	out := x.Out
	fields := 1
	for _, with := range []bool{s.withDist, s.withHash, s.withPlace} {
		if with {
			fields++
		}
	}
	out.Array(len(found))
	for _, m := range found {
		if fields > 1 {
			out.Array(fields)
		}
		out.BulkString(m.Member)
		if s.withDist {
			replyDistance(x, m.meters/s.area.Unit)
		}
		if s.withHash {
			out.Int(int64(m.Score))
		}
		if s.withPlace {
			replyPlace(out, geo.PlaceOf(m.Score))
		}
	}
}

// store overwrites the destination. Without members it removes it.
func (s *geoSearch) store(x *Call, found []geoFound) {
	event := "georadiusstore"
	if s.args == 0 {
		event = "geosearchstore"
	}
	x.Spend(len(found) * orderedMember)
	members := make([]keyspace.Member, len(found))
	for i, m := range found {
		if s.storeDist {
			m.Score = m.meters / s.area.Unit
		}
		members[i] = keyspace.MemberOf(m.Scored, x.spendBytesOf)
	}
	keyspace.SortByHash(members, x.spendTexts)
	z := keyspace.ZSetOfMembers(members, x.spendTexts)
	storeCollection(x, s.into, z, NotifyZSet, event)
	x.Out.Int(int64(len(found)))
}
