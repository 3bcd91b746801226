package script

import (
	"runtime"
	"strings"
	"testing"

	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/tests/detector"
)

// longTexts build long texts of short pieces, long pieces, or both, up to the end of the budget or
// close to it. With growing buffers they took up to seven times the bytes that they paid for.
var longTexts = []string{
	`cjson.encode(("x"):rep(3e7))`,
	`local s, t = ("x"):rep(1e6), {} for i = 1, 30 do t[i] = s end cjson.encode(t)`,
	`local s, t = ("x"):rep(1000), {} for i = 1, 3e4 do t[i] = s end cjson.encode(t)`,
	`local t = {} for i = 1, 1e5 do t[i] = i * 1.5 end while true do cjson.encode(t) end`,
	`while true do cjson.encode(("/"):rep(1e6)) end`,
	`local s = ("\1"):rep(1e5) while true do cjson.encode(s) end`,
	`cjson.decode('"' .. ("\\n"):rep(5e6) .. '"')`,
	`cjson.decode('"' .. ("\\u00e9"):rep(2e6) .. '"')`,
	`cjson.decode('"' .. ("\\n" .. ("x"):rep(1000)):rep(1e4) .. '"')`,
	`cmsgpack.pack(("x"):rep(3e7))`,
	`local s, t = ("x"):rep(1e6), {} for i = 1, 30 do t[i] = s end cmsgpack.pack(t)`,
	`local t = {} for i = 1, 1e5 do t[i] = i end while true do cmsgpack.pack(t) end`,
	`local s, t = ("x"):rep(1e6), {} for i = 1, 60 do t[i] = s end
	 struct.pack(("s"):rep(60), unpack(t))`,
	`local f, t = ("d"):rep(5000), {} for i = 1, 5000 do t[i] = i end
	 while true do struct.pack(f, unpack(t)) end`,
	`("x"):rep(1e7):gsub("x", "yy")`,
	`("x"):rep(3e6):gsub("x", ("y"):rep(20))`,
	`("x"):rep(3e5):gsub("x", ("y"):rep(1000))`,
	`("x"):rep(3e4):gsub("x", ("y"):rep(10000))`,
	`("x"):rep(3e6):gsub("x", {x = ("y"):rep(20)})`,
	`("x"):rep(3e6):gsub("x", function() return "yyyyyyyyyyyyyyyy" end)`,
	`("x"):rep(3e6):gsub("x", "%0%0%0%0%0%0%0%0")`,
	`("x"):rep(3e7):gsub("x", "y", 1)`,
	`("%s"):format(("x"):rep(3e7))`,
	`("%q"):format(("x"):rep(2e7))`,
	`("%q"):format(("\n"):rep(1e7))`,
	`local s, t = ("x"):rep(1e6), {} for i = 1, 60 do t[i] = s end (("%s"):rep(60)):format(unpack(t))`,
	`local f, t = ("%99.50f"):rep(200), {} for i = 1, 200 do t[i] = i end
	 while true do f:format(unpack(t)) end`,
	`local f = ("a%%"):rep(1e6) while true do f:format() end`,
	`local s = ("x"):rep(2e7) s:upper():lower()`,
	`local s = ("x"):rep(100) while true do s = s:upper() end`,
	`local s = ("x"):rep(2e7) s:reverse():reverse()`,
	`local s = ("x"):rep(100) while true do s = s:reverse() end`,
	`local s, t = ("x"):rep(1e6), {} for i = 1, 60 do t[i] = s end table.concat(t)`,
	`local s, t = ("x"):rep(1000), {} for i = 1, 6e4 do t[i] = s end table.concat(t)`,
	`local t = {} for i = 1, 1e5 do t[i] = "x" end while true do table.concat(t, ",") end`,
	`local t = {} for i = 1, 1e5 do t[i] = i end while true do table.concat(t, ",") end`,
	`local s = ("x"):rep(1e7) local t = s .. s .. s .. s .. s`,
	`local s = "" while true do s = s .. ("x"):rep(1000) end`,
	`error(("x"):rep(3e7))`,
	`for i = 1, 100 do redis.call("setrange", "k", i * 1e7, "x") end`,
	`local s = ("x"):rep(1e7) for i = 0, 100 do redis.call("setrange", "k", i * 1e7, s) end`,
}

func TestLongTextsAllocateWhatTheyAreChargedFor(t *testing.T) {
	detector.Skip(t)
	for _, source := range longTexts {
		limit := lua.Budget{Instructions: scriptInstructions, Bytes: scriptBytes}
		in := newInterpreter(testTable(), true)
		runHostileWithin(t, in, `return 1`, limit) // what an interpreter keeps
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reply, left := runHostileWithin(t, in, source, limit)
		runtime.ReadMemStats(&after)
		if strings.HasPrefix(reply, "-") && !strings.Contains(reply, "script stopped") {
			t.Errorf("%s: %.100q", source, reply)
		}
		made := int64(after.TotalAlloc - before.TotalAlloc)
		charged := scriptBytes - max(left.Bytes, 0)
		// A growing buffer allocates at least twice what it charges.
		if most := charged + charged/4 + 1<<20; made > most {
			t.Errorf("%s: %d bytes were allocated, charged %d", source, made, charged)
		}
		if made > 80<<20 {
			t.Errorf("%s: %d bytes were allocated", source, made)
		}
		if units := scriptInstructions - left.Instructions; units < made/20 {
			t.Errorf("%s: %d units for %d bytes", source, units, made)
		}
	}
}

// Texts are the same, however they are split into pieces.
func TestTextJoinsItsPieces(t *testing.T) {
	in := newInterpreter(testTable(), true)
	for _, size := range []int{0, 1, 63, 64, 65, 320, 321, 1023, 1024, 1025, 5000, 70_000,
		300_000} {
		in.L.Begin(lua.Budget{Instructions: 1 << 40, Bytes: 1 << 40})
		out, want := text{L: in.L}, strings.Builder{}
		for i := 0; want.Len() < size; i++ {
			s := strings.Repeat(string(rune('a'+i%26)), i*i%2000)
			switch i % 3 {
			case 0:
				out.write(s)
			case 1:
				out.addBytes([]byte(s))
			case 2:
				s = "!"
				out.addByte('!')
			}
			want.WriteString(s)
		}
		length := out.size
		if got := out.done(); got != want.String() || length != want.Len() {
			t.Errorf("%d bytes: %d, want %d, or different ones", size, len(got), want.Len())
		}
	}
}
