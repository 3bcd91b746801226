package commands

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/geo"
	"github.com/coordd/coordd/internal/tests/seeds"
)

func TestGeoCallsThatChangeNothing(t *testing.T) {
	r := newTestRun()
	r.level = FeatureLevel
	r.must(t, "GEOADD", "g", "13.361389", "38.115556", "a", "15.087269", "37.502669", "b")
	changesNothing(t, r, [][]string{
		{"GEOADD", "g", "13.361389", "38.115556", "a"}, {"GEOADD", "g", "NX", "1", "1", "a"},
		{"GEOADD", "g", "XX", "1", "1", "c"}, {"GEOADD", "none", "XX", "1", "1", "c"},
		{"GEORADIUS", "g", "15", "37", "200", "KM"}, {"GEORADIUSBYMEMBER", "g", "a", "1", "KM"},
		{"GEORADIUS", "none", "15", "37", "200", "KM", "STORE", "none"},
		{"GEOSEARCHSTORE", "none", "g", "FROMLONLAT", "1", "1", "BYRADIUS", "1", "M"},
	})
}

// A search finds the members that a look at all members finds, in small sets and large ones.
func TestGeoSearchesFindAll(t *testing.T) {
	seed := seeds.Of(t)
	g := rand.New(rand.NewPCG(seed, 0))
	for _, members := range []int{50, 3000} {
		r := newTestRun()
		r.level = FeatureLevel
		places := map[string]geo.Place{}
		for i := range members {
			p := geo.Place{Lon: g.Float64()*360 - 180, Lat: g.Float64()*120 - 60}
			name := strconv.Itoa(i)
			r.must(t, "GEOADD", "g", geoText(p.Lon), geoText(p.Lat), name)
			places[name] = geo.PlaceOf(p.Score())
		}
		for range 300 {
			a := geo.Area{Center: places[strconv.Itoa(g.IntN(members))], Unit: 1000,
				Radius: math.Pow(10, 3*g.Float64()), Box: g.IntN(2) == 0}
			a.Width, a.Height = a.Radius, 2*a.Radius*g.Float64()
			call := []string{"GEOSEARCH", "g", "FROMLONLAT", geoText(a.Center.Lon),
				geoText(a.Center.Lat)}
			if a.Box {
				call = append(call, "BYBOX", geoText(a.Width), geoText(a.Height), "KM")
			} else {
				call = append(call, "BYRADIUS", geoText(a.Radius), "KM")
			}
			var want []string
			for name, p := range places {
				if _, within := a.Distance(p); within {
					want = append(want, name)
				}
			}
			if got := geoNames(t, r, call); !slices.Equal(got, sortedNames(want)) {
				t.Fatalf("%v: %v, want %v", call, got, sortedNames(want))
			}
		}
	}
}

func geoText(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func sortedNames(names []string) []string {
	slices.Sort(names)
	return names
}

// geoNames returns the members that a search finds, sorted. With COUNT they are its beginning.
func geoNames(t *testing.T, r *testRun, call []string) []string {
	t.Helper()
	names := func(more ...string) (list []string) {
		v, err := commandtest.Parse(r.must(t, append(slices.Clone(call), more...)...))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range v.Elems {
			list = append(list, e.Text)
		}
		return list
	}
	near := names("ASC")
	for _, n := range []int{1, 3} {
		if few := names("COUNT", strconv.Itoa(n)); !slices.Equal(few, near[:min(n, len(near))]) {
			t.Errorf("COUNT %d: %v of %v", n, few, near)
		}
	}
	far := names("DESC")
	slices.Reverse(far)
	if !slices.Equal(far, near) {
		t.Errorf("ascending %v, descending %v", near, far)
	}
	return sortedNames(near)
}
