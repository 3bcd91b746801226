package geo

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A place is at most half a cell from the place that its score means, which has the same score.
func FuzzPlace(f *testing.F) {
	f.Add(13.361389, 38.115556)
	f.Add(-180.0, -85.05112878)
	f.Fuzz(func(t *testing.T, lon, lat float64) {
		p := Place{lon, lat}
		if !p.Valid() {
			t.Skip()
		}
		score := p.Score()
		q := PlaceOf(score)
		const cell = 1 << scoreLevel
		if math.Abs(q.Lon-lon) > 360.0/cell || math.Abs(q.Lat-lat) > 171.0/cell {
			t.Errorf("%v becomes %v", p, q)
		}
		if lon < maxLon && lat < maxLat && q.Score() != score {
			t.Errorf("%v has the score %f, its cell %f", p, score, q.Score())
		}
		if h := Hash(score); len(h) != 11 {
			t.Errorf("hash %q", h)
		}
	})
}

// Every number is a place.
func FuzzScore(f *testing.F) {
	for _, score := range []float64{0, -1, 1.5, 1 << 52, 1 << 53, 1 << 63, 1 << 64, -1 << 63, 1e300,
		math.Inf(1), math.Inf(-1)} {
		f.Add(score)
	}
	f.Fuzz(func(t *testing.T, score float64) {
		if math.IsNaN(score) {
			t.Skip()
		}
		p := PlaceOf(score)
		if !p.Valid() {
			t.Errorf("%g is %v", score, p)
		}
		if d := Distance(p, Place{}); !(d >= 0 && d <= 20_020_740) {
			t.Errorf("%v is %f m away", p, d)
		}
	})
}

// The ranges of an area have all that is in it, and little else, unless it is huge or near a pole.
func TestRanges(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	inside, walked := 0, 0
	for range 20_000 {
		a := Area{Unit: 1000, Radius: math.Pow(10, 4*r.Float64()-1), Box: r.IntN(2) == 0}
		a.Width, a.Height = 2*a.Radius*r.Float64(), 2*a.Radius*r.Float64()
		a.Center = Place{r.Float64()*360 - 180, r.Float64()*120 - 60}
		ranges := a.Ranges()
		if len(ranges) < 1 || len(ranges) > 9 {
			t.Fatalf("%+v: %v", a, ranges)
		}
		for range 20 {
			degrees := a.Radius / 100
			p := Place{a.Center.Lon + degrees*r.NormFloat64(),
				a.Center.Lat + degrees*r.NormFloat64()}
			if !p.Valid() {
				continue
			}
			p = PlaceOf(p.Score())
			found := false
			for _, s := range ranges {
				found = found || (p.Score() >= s.Min && p.Score() < s.Max)
			}
			_, within := a.Distance(p)
			if within && !found {
				t.Errorf("%+v: %v is not in %v", a, p, ranges)
			}
			if within {
				inside++
			}
			if found {
				walked++
			}
		}
	}
	if walked > 4*inside {
		t.Errorf("%d places are in ranges, %d of them in areas", walked, inside)
	}
}

// Far places are on the other side of the earth, not nowhere.
func TestAntipodes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 100_000 {
		p := Place{r.Float64()*180 - 180, r.Float64()*170 - 85}
		if d := Distance(p, Place{p.Lon + 180, -p.Lat}); math.Abs(d-math.Pi*radius) > 0.3 {
			t.Fatalf("%v: %f", p, d)
		}
	}
}

func BenchmarkDistance(b *testing.B) {
	a := Area{Center: Place{13.4, 52.5}, Unit: 1000, Radius: 100}
	score := Place{13.5, 52.6}.Score()
	for b.Loop() {
		a.Distance(PlaceOf(score))
	}
}

func BenchmarkBox(b *testing.B) {
	a := Area{Center: Place{13.4, 52.5}, Unit: 1000, Box: true, Width: 100, Height: 100}
	score := Place{13.5, 52.6}.Score()
	for b.Loop() {
		a.Distance(PlaceOf(score))
	}
}

func BenchmarkRanges(b *testing.B) {
	a := Area{Center: Place{13.4, 52.5}, Unit: 1000, Radius: 100}
	for b.Loop() {
		a.Ranges()
	}
}
