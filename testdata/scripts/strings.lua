---- 0
return {("abc"):byte(), ("abc"):byte(2), ("abc"):byte(-1), ("abc"):byte(10), select("#", ("abc"):byte(1, -1)), select("#", (""):byte())}
---- 0
return {string.byte("hello", 2, 4)}
---- 0
return {string.char(), string.char(72, 105), string.char(0, 255, 10)}
---- 0
return string.char(256)
---- 0
return string.char(-1)
---- 0
return string.char("x")
---- 0
return string.char("65", 66.9)
---- 0
return {("abc"):sub(2), ("abc"):sub(-2), ("abc"):sub(2, 2), ("abc"):sub(0), ("abc"):sub(3, 2), ("abc"):sub(-100, 100), ("abc"):sub(2, -2), ("abc"):sub(4), ("abc"):sub(1, 0)}
---- 0
return {("abc"):sub("2"), ("abc"):sub(2.9), ("abc"):sub(-1.5), (123):rep(2), ("x").rep("ab", 3)}
---- 0
return ("abc"):sub()
---- 0
return ("abc"):sub({})
---- 0
return string.sub()
---- 0
return {#("x"):rep(0), #("x"):rep(-5), ("ab"):rep(3), ("ab"):rep(2.9), (""):rep(1000000)}
---- 0
return {("Hello World"):upper(), ("Hello World"):lower(), ("Hello"):reverse(), (""):reverse(), ("\xc3\xa4"):upper(), ("a\0b"):upper()}
---- 0
return {("abc"):len(), #"a\0b", (12345):len()}
---- 0
return {string.len(12.5), string.upper(1e3), string.reverse(100)}
---- 0
return {("hello world"):find("wor"), ("hello world"):find("l"), ("hello"):find("xyz"), 7}
---- 0
return {("hello"):find("l", 4), ("hello"):find("l", 5), ("hello"):find("", 10), ("hello"):find("", 6), ("hello"):find(""), ("hello"):find("h", -5), ("hello"):find("h", -100)}
---- 0
return {("a.b"):find(".", 1, true), ("a.b"):find("."), ("a+b"):find("+", 1, true), ("a%b"):find("%", 1, true), ("abc"):find("b", 1, 1), ("abc"):find("b", 1, nil)}
---- 0
return {("key=value"):find("(%w+)=(%w+)")}
---- 0
return {("key=value"):match("(%w+)=(%w+)"), ("key = value"):match("^%s*(%S+)%s*=%s*(%S+)%s*$"), ("abc"):match("x"), 1}
---- 0
return {("abc"):match("()b()"), ("abc"):match(".-"), ("abc"):match(".*"), ("abc"):match("a?b?c?d?"), ("aaa"):match("a-b"), 5}
---- 0
return {("  trim  "):match("^%s*(.-)%s*$"), ("2024-01-02"):match("(%d+)-(%d+)-(%d+)")}
---- 0
return {("f(a(b)c)d"):match("%b()"), ("[[x]]"):match("%b[]"), ("THE (quick) fox"):find("%((%a+)%)"), ("xx"):match("%bxx")}
---- 0
return {("THE (quick) fox"):gsub("%f[%a]%a+", "W"), ("hello world"):gsub("%f[%w]%w", string.upper)}
---- 0
return {("abcabc"):match("(a)(b)(c)%1%2%3"), ("abab"):match("(ab)%1"), ("abac"):match("(ab)%1"), 1}
---- 0
return {("x"):match("[]]"), ("]"):match("[]]"), ("^"):match("[%^]"), ("-"):match("[a-]"), ("b"):match("[a-c]"), ("-"):match("[+--]"), ("a"):match("[^a]"), ("b"):match("[^a]")}
---- 0
return {("a1 b2"):gsub("%a%d", "<%0>"), ("abc"):gsub("", "-"), ("abc"):gsub(".", "%0%0"), ("abc"):gsub("b", "%%"), ("abc"):gsub("(a)(b)", "%2%1")}
---- 0
return {("hello"):gsub("l", "L", 1), ("hello"):gsub("l", "L", 0), ("hello"):gsub("l", "L", -1), ("hello"):gsub("x", "y"), ("abc"):gsub("%w", {a = "1", b = true and "2", c = false})}
---- 0
return {("$name is $age"):gsub("%$(%w+)", {name = "bob", age = 42})}
---- 0
return {("abc"):gsub("%w", function(c) if c == "b" then return nil end return c:upper() end), ("abc"):gsub("(a)(b)", function(x, y) return y .. x end), ("abc"):gsub("b", function() return false end)}
---- 0
return ("abc"):gsub("%w", function() return {} end)
---- 0
return ("abc"):gsub("%w", {a = {}})
---- 0
return ("abc"):gsub("a", true)
---- 0
return ("abc"):gsub("a")
---- 0
return ("abc"):gsub("(", "x")
---- 0
return ("abc"):gsub(")", "x")
---- 0
return ("abc"):gsub("[a", "x")
---- 0
return ("abc"):gsub("%", "x")
---- 0
return ("abc"):gsub("a", "%2")
---- 0
return ("abc"):gsub("a", "%1")
---- 0
return ("abc"):find("%f")
---- 0
return ("abc"):find("%b")
---- 0
return ("abc"):find("%1")
---- 0
return ("abc"):match("(a)%2")
---- 0
return ("abc"):find("(()")
---- 0
return ("a"):rep(40):match(("(a)"):rep(33))
---- 0
return select("#", ("a"):rep(40):match(("(a)"):rep(32)))
---- 0
local t = {} for k, v in ("a=1, b=2, c=3"):gmatch("(%w+)=(%w+)") do t[#t + 1] = k .. v end return t
---- 0
local t = {} for w in ("one two  three"):gmatch("%S+") do t[#t + 1] = w end return t
---- 0
local t = {} for p in ("abc"):gmatch("()") do t[#t + 1] = p end return t
---- 0
local t = {} for w in ("abc"):gmatch("^a") do t[#t + 1] = w end return t
---- 0
local t = {} for a, b in ("k1v1k2v2"):gmatch("(k%d)(v%d)") do t[#t + 1] = a .. ":" .. b end return t
---- 0
return ("abc"):gmatch("%")()
---- 0
local t = {} for _, p in ipairs({"%a", "%c", "%d", "%l", "%p", "%s", "%u", "%w", "%x", "%z", "%A", "%D", "%S", "%W", "%g", "%y"}) do local n = 0 for i = 0, 255 do if string.char(i):find(p) then n = n + 1 end end t[#t + 1] = p .. n end return t
---- 0
return {("%d"):format(3.99), ("%d"):format(-3.99), ("%i"):format(7), ("%5d|%-5d|%05d|%+d|% d"):format(42, 42, 42, 42, 42), ("%.3d"):format(5), ("%d"):format("10")}
---- 0
return {("%u"):format(42), ("%o"):format(8), ("%x"):format(255), ("%X"):format(255), ("%#x"):format(255), ("%#o"):format(8), ("%08x"):format(255)}
---- 0
return {("%c%c"):format(72, 105), ("%5c|"):format(65), ("%s"):format("x"), ("%10s|"):format("x"), ("%-10s|"):format("x"), ("%.2s"):format("xyz"), ("%5.1s|"):format("xyz")}
---- 0
return {("%f"):format(1.5), ("%.2f"):format(1.005), ("%10.3f|"):format(3.14159), ("%-10.1f|"):format(2.25), ("%+.1f"):format(1), ("%.0f"):format(0.5), ("%.0f"):format(1.5), ("%#.0f"):format(2)}
---- 0
return {("%e"):format(12345.678), ("%.2e"):format(0.00012), ("%E"):format(1), ("%g"):format(100000), ("%g"):format(1000000), ("%g"):format(0.0001), ("%g"):format(0.00001), ("%.3g"):format(1234), ("%G"):format(1e-10), ("%#g"):format(1)}
---- 0
return {("%.14g"):format(0.1), ("%.17g"):format(0.1), ("%.20f"):format(0.1), ("%5.1f%%"):format(99.5), ("%f"):format(1e15), ("%.99f"):format(1/3)}
---- 0
return {("%f"):format(1/0), ("%f"):format(-1/0), ("%d"):format(0), ("%g"):format(1/0), ("%5g|"):format(1/0), ("%05g|"):format(-1/0)}
---- 0
return {("%q"):format('a "quoted"\nline\\ with\0zero\r'), ("%q"):format(12)}
---- 0
return {("%s %s"):format(1, 2.5), ("%s"):format(1e20), ("%%"):format(), ("100%%"):format()}
---- 0
return ("%s"):format(true)
---- 0
return ("%s"):format(nil)
---- 0
return ("%s"):format()
---- 0
return ("%s"):format({})
---- 0
return ("%d"):format("x")
---- 0
return ("%d"):format({})
---- 0
return ("%y"):format(1)
---- 0
return ("%"):format(1)
---- 0
return ("%123d"):format(1)
---- 0
return ("%.123d"):format(1)
---- 0
return ("%-+ #00d"):format(1)
---- 0
return ("%ld"):format(1)
---- 0
return {tostring(1), tostring(1.0), tostring(1e14), tostring(1e15), tostring(1e16), tostring(123456789012345), tostring(0.1), tostring(1/3), tostring(1e-5), tostring(2^53), tostring(1e100), tostring(-1/0)}
---- 0
return {tonumber("10"), tonumber("  10  "), tonumber("10a"), 1}
---- 0
local t = {} for i, s in ipairs({"0x1F", "1e3", ".5", "5.", "-7", "+7", "0x", "", " ", "1 2", "1e", "0xg", "inf", "1e400", "0x1p4", "1_0", "--1", "- 1"}) do t[i] = s .. "=" .. tostring(tonumber(s)) end return t
---- 0
local t = {} for i, c in ipairs({{"ff", 16}, {"zz", 36}, {"777", 8}, {"8", 8}, {"101", 2}, {"-11", 2}, {"  7 ", 10}, {"0xff", 16}, {"7fffffffffffffff", 16}, {"ffffffffffffffff", 16}, {"", 16}, {"1.5", 16}}) do t[i] = c[1] .. "=" .. tostring(tonumber(c[1], c[2])) end return t
---- 0
return {tonumber(nil)}
---- 0
return {tostring(tonumber({})), tostring(tonumber(true))}
---- 0
return tonumber({}, 16)
---- 0
return tonumber("10", 1)
---- 0
return tonumber("10", 37)
---- 0
return {"a" < "b", "a" < "B", "" < "a", "a\0b" < "a\0c", "Z" < "a", "10" < "9", "a" <= "a", "\xff" > "a"}
---- 0
return {1 .. "", 1.5 .. "x", -0 .. "", 1e300 * 10 .. "", 2^63 .. "", "a" .. 1 .. 2}
---- 0
return #(("x"):rep(10) .. ("y"):rep(20))
---- 0
return {"\65\066\x", '\'', "\"", "a\
b", [[long
string]], [==[with ]] in it]==], "\\n"}
---- 0
return {string.format("%5s|%-5s|", "ab", "ab"), string.format("%3d|%-3d|%03d", 7, 7, 7), string.format("%.3f", 2/3), string.format("%s:%s", "k", 1)}
---- 0
local parts = {} for p in ("a:b::c"):gmatch("([^:]*):?") do parts[#parts + 1] = p end return parts
---- 0
return {("x"):rep(3, ","), string.gfind("ab", "%a")()}
---- 0
return string.dump(print)
