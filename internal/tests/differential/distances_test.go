package differential

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// Stored distances are those of the real server but for the last bits of few. An error of a sine
// grows towards the other side of the earth.
func TestStoredDistances(t *testing.T) {
	const places, searches, earth = 1000, 20, 2 * 6372797.560856
	real, err := commandtest.Dial("unix", commandtest.NeedRedis(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = real.Close() }()
	n := newNode(testTable())
	// both makes a call on both servers and returns the replies.
	both := func(words ...string) (got, want commandtest.Value) {
		args := commandtest.Args(words...)
		ours, err := n.apply(commands.AppendRequest(nil,
			&commands.Request{Proto: 2, Cmds: [][][]byte{args}}))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := real.Do(args)
		if err != nil {
			t.Fatal(err)
		}
		if got, want, err = parsePair(ours, theirs); err != nil {
			t.Fatal(err)
		}
		return got, want
	}
	both("FLUSHALL")
	r := rand.New(rand.NewPCG(seeds.Of(t), 0))
	for i := range places {
		spread := math.Pow(10, -float64(i%6)) // some are near others
		both("GEOADD", "g", fmt.Sprint(10+170*spread*(2*r.Float64()-1)),
			fmt.Sprint(5+80*spread*(2*r.Float64()-1)), strconv.Itoa(i))
	}
	stored, different := 0, 0
	for i := range searches {
		unit, meters := "M", 1.0
		if i%2 > 0 {
			unit, meters = "MI", 1609.34
		}
		both("GEOSEARCHSTORE", "d", "g", "FROMMEMBER", strconv.Itoa(i), "BYRADIUS", "1e9", unit,
			"STOREDIST")
		ours, theirs := both("ZRANGE", "d", "0", "-1", "WITHSCORES")
		scores := func(v commandtest.Value) map[string]string {
			byName := map[string]string{}
			for k := 0; k+1 < len(v.Elems); k += 2 {
				byName[v.Elems[k].Text] = v.Elems[k+1].Text
			}
			return byName
		}
		own, their := scores(ours), scores(theirs)
		for j := range places {
			got, want := own[strconv.Itoa(j)], their[strconv.Itoa(j)]
			a, errA := strconv.ParseFloat(got, 64)
			b, errB := strconv.ParseFloat(want, 64)
			half := min(b*meters/earth, math.Pi/2)
			if errA != nil || errB != nil || math.Abs(a-b) > 1e-15*(b+earth/meters*math.Tan(half)) {
				t.Errorf("distance of %d to %d: %s, want %s", i, j, got, want)
			}
			if stored++; a != b {
				different++
			}
		}
	}
	t.Logf("%d of %d distances differ in the last bits", different, stored)
	if different > stored/100 {
		t.Error("more than one in 100")
	}
}
