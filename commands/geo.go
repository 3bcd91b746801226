// The GEO commands on places in sorted sets. Package geo has the geometry, geo_search.go the
// searches.

package commands

import (
	"math"
	"strconv"

	"github.com/coordd/coordd/commands/geo"
)

// Options of searches, as Spec.Syntax has them.
const (
	geoUnits = "<M | KM | FT | MI>"
	geoFrom  = "<FROMMEMBER member | FROMLONLAT longitude:double latitude:double> "
	geoShape = "<BYRADIUS radius:double " + geoUnits + " | " +
		"BYBOX width:double height:double " + geoUnits + "> "
	geoOrder   = "[ASC | DESC]"
	geoCount   = "[COUNT count:integer [ANY]]"
	geoWith    = "[WITHCOORD] [WITHDIST] [WITHHASH]"
	geoStore   = " [STORE key] [STOREDIST key]"
	geoLonLat  = "key longitude:double latitude:double radius:double " + geoUnits + " "
	geoMember  = "key member radius:double " + geoUnits + " "
	geoOptions = geoWith + " " + geoCount + " " + geoOrder
)

const (
	geoGroup   = "geo"
	searchCost = "O(n + log m) for n members in the cells around the area and m in the sorted set"
)

var geoSpecs = []Spec{
	{Name: "geoadd", Kind: Write, Arity: -5, Flags: DenyOOM, Level: LevelSecond,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: geoGroup, Since: "3.2.0",
		Syntax: "key [NX | XX] [CH] longitude:double latitude:double member [longitude:double " +
			"latitude:double member ...]",
		Summary:    "Adds members with their places to a sorted set, or moves them.",
		Complexity: "O(log n) a member", ArgWork: cheapArg, Handler: geoadd},
	{Name: "geopos", Kind: Read, Arity: -2, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: geoGroup, Since: "3.2.0",
		Syntax: "key member [member ...]", Summary: "Returns the places of members.",
		Complexity: "O(log n) a member", Handler: geopos},
	{Name: "geodist", Kind: Read, Arity: -4, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: geoGroup, Since: "3.2.0",
		Syntax:     "key member1 member2 [M | KM | FT | MI]",
		Summary:    "Returns the distance between two members.",
		Complexity: "O(log n)", Handler: geodist},
	{Name: "geohash", Kind: Read, Arity: -2, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: geoGroup, Since: "3.2.0",
		Syntax: "key member [member ...]", Summary: "Returns the geohashes of members.",
		Complexity: "O(log n) a member", Handler: geohash},
	{Name: "geosearch", Kind: Read, Arity: -7, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: geoGroup, Since: "6.2.0",
		Syntax:     "key " + geoFrom + geoShape + geoOrder + " " + geoCount + " " + geoWith,
		Summary:    "Returns the members in a circle or a box.",
		Complexity: searchCost, Handler: geosearch(geoForm{key: 1})},
	{Name: "geosearchstore", Kind: Write, Arity: -8, Flags: DenyOOM, Level: LevelSecond,
		Keys: destinationAndSource, Group: geoGroup, Since: "6.2.0",
		Syntax: "destination:key source:key " + geoFrom + geoShape + geoOrder + " " + geoCount +
			" [STOREDIST]",
		Summary:    "Stores the members in a circle or a box in a key.",
		Complexity: searchCost, Handler: geosearch(geoForm{key: 2, stores: true})},
	{Name: "georadius", Kind: Write, Arity: -6, Flags: DenyOOM | MovableKeys,
		Level: LevelSecond, Keys: georadiusKeys(6), Group: geoGroup, Since: "3.2.0",
		Syntax:     geoLonLat + geoOptions + geoStore,
		Summary:    "Returns or stores the members in a circle around a place.",
		Complexity: searchCost, Handler: geosearch(geoForm{key: 1, args: 6, stores: true})},
	{Name: "georadius_ro", Kind: Read, Arity: -6, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: geoGroup, Since: "3.2.10",
		Syntax: geoLonLat + geoOptions, Summary: "Returns the members in a circle around a place.",
		Complexity: searchCost, Handler: geosearch(geoForm{key: 1, args: 6})},
	{Name: "georadiusbymember", Kind: Write, Arity: -5, Flags: DenyOOM | MovableKeys,
		Level: LevelSecond, Keys: georadiusKeys(5), Group: geoGroup, Since: "3.2.0",
		Syntax:     geoMember + geoOptions + geoStore,
		Summary:    "Returns or stores the members in a circle around a member.",
		Complexity: searchCost, Handler: geosearch(geoForm{key: 1, args: 5, stores: true})},
	{Name: "georadiusbymember_ro", Kind: Read, Arity: -5, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: geoGroup, Since: "3.2.10",
		Syntax: geoMember + geoOptions, Summary: "Returns the members in a circle around a member.",
		Complexity: searchCost, Handler: geosearch(geoForm{key: 1, args: 5})},
}

// georadiusKeys returns where the keys of GEORADIUS or GEORADIUSBYMEMBER are, whose options begin
// at an argument.
func georadiusKeys(options int) KeySpec {
	stored := KeyPart{First: options, Step: 1, Keyword: "STORE", Flags: KeyOW | KeyUpdate}
	distances := stored
	distances.Keyword = "STOREDIST"
	return KeySpec{First: 1, Last: 1, Step: 1,
		Parts: []KeyPart{{First: 1, Step: 1, Flags: KeyRO | KeyAccess}, stored, distances},
		Find: func(args [][]byte) []int {
			keys := []int{1}
			for i := options; i+1 < len(args); i++ {
				if isWord(args[i], "STORE") || isWord(args[i], "STOREDIST") {
					i++
					keys = append(keys, i)
				}
			}
			return keys
		}}
}

// parsePlace parses longitude and latitude.
func parsePlace(x *Call, args [][]byte) (p geo.Place, err error) {
	var ok [2]bool
	p.Lon, ok[0] = ParseFloat(args[0])
	p.Lat, ok[1] = ParseFloat(args[1])
	x.spendNumber(len(args[0]) + len(args[1]))
	switch {
	case !ok[0] || !ok[1]:
		return p, ErrNotFloat
	case !p.Valid():
		return p, Errorf("ERR invalid longitude,latitude pair %s,%s", sixDecimals(p.Lon),
			sixDecimals(p.Lat))
	}
	return p, nil
}

// sixDecimals formats a number as C's %f.
func sixDecimals(f float64) string {
	if math.IsInf(f, 0) {
		return FormatFloat(f)
	}
	return strconv.FormatFloat(f, 'f', 6, 64)
}

const errGeoUnit Error = "ERR unsupported unit provided. please use M, KM, FT, MI"

// parseUnit returns how many meters a unit has.
func parseUnit(arg []byte) (meters float64, err error) {
	switch {
	case isWord(arg, "M"):
		return 1, nil
	case isWord(arg, "KM"):
		return 1000, nil
	case isWord(arg, "FT"):
		return 0.3048, nil
	case isWord(arg, "MI"):
		return 1609.34, nil
	}
	return 0, errGeoUnit
}

// geoadd is ZADD with places as scores.
func geoadd(x *Call) error {
	var a zaddition
	args := x.Args[2:]
options:
	for ; len(args) > 0; args = args[1:] {
		switch {
		case isWord(args[0], "NX"):
			a.nx = true
		case isWord(args[0], "XX"):
			a.xx = true
		case isWord(args[0], "CH"):
			a.ch = true
		default:
			break options
		}
	}
	if len(args) == 0 || len(args)%3 != 0 || (a.nx && a.xx) {
		return ErrSyntax
	}
	for ; len(args) > 0; args = args[3:] {
		place, err := parsePlace(x, args)
		if err != nil {
			return err
		}
		a.scores = append(a.scores, place.Score())
		a.pairs = append(a.pairs, nil, args[2])
	}
	return a.run(x)
}

// eachPlace replies an array with an element for each member: nothing if it does not exist.
func eachPlace(nothing func(Reply), reply func(out Reply, score float64)) Handler {
	return func(x *Call) error {
		z, err := findZSet(x, x.Args[1])
		if err != nil {
			return err
		}
		x.Out.Array(len(x.Args) - 2)
		for _, member := range x.Args[2:] {
			x.Spend(placedMember)
			if score, ok := z.Score(member); ok {
				reply(x.Out, score)
			} else {
				nothing(x.Out)
			}
		}
		return nil
	}
}

var (
	geopos = eachPlace(Reply.NullArray, func(out Reply, score float64) {
		replyPlace(out, geo.PlaceOf(score))
	})
	geohash = eachPlace(Reply.Null, func(out Reply, score float64) {
		out.BulkString(geo.Hash(score))
	})
)

func replyPlace(out Reply, p geo.Place) {
	out.Array(2)
	out.Decimal(p.Lon)
	out.Decimal(p.Lat)
}

func geodist(x *Call) error {
	unit := 1.0
	if len(x.Args) > 5 {
		return ErrSyntax
	}
	if len(x.Args) == 5 {
		var err error
		if unit, err = parseUnit(x.Args[4]); err != nil {
			return err
		}
	}
	z, err := findZSet(x, x.Args[1])
	if err != nil {
		return err
	}
	a, okA := z.Score(x.Args[2])
	b, okB := z.Score(x.Args[3])
	if !okA || !okB {
		x.Out.Null()
		return nil
	}
	x.Spend(measuredMember)
	replyDistance(x, geo.Distance(geo.PlaceOf(a), geo.PlaceOf(b))/unit)
	return nil
}

// replyDistance replies a distance, in any unit.
func replyDistance(x *Call, d float64) {
	x.Spend(doubleWork)
	x.Out.BulkString(strconv.FormatFloat(d, 'f', 4, 64))
}
