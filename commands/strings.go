// The Specs of the commands on strings. The handlers are in strings_*.go.

package commands

var stringSpecs = []Spec{
	{
		Name: "set", Kind: Write, Acts: actSet, Arity: -3, Flags: DenyOOM,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate |
			KeyVariable).varies(setUses), Group: "string", Since: "1.0.0",
		Syntax: "key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] " +
			"[GET] " +
			"[EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | " +
			"PXAT unix-time-milliseconds:unix-time | KEEPTTL | LEASE id:integer]",
		Summary: "Sets the string value of a key, optionally with a condition and a time to " +
			"live.",
		Complexity: "O(1)", Grows: growsByValue, Handler: setCommand,
	},
	{
		Name: "setnx", Kind: Write, Acts: actNX, Arity: 3, Flags: DenyOOM | Fast,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyOW | KeyInsert), Group: "string",
		Since:      "1.0.0",
		Syntax:     "key value",
		Summary:    "Sets the string value of a key only if the key doesn't exist.",
		Complexity: "O(1)", Grows: growsKey, Handler: setnxCommand,
	},
	{
		Name: "setex", Kind: Write, Acts: actSet, Arity: 4, Flags: DenyOOM,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyOW | KeyUpdate), Group: "string",
		Since:      "2.0.0",
		Syntax:     "key seconds:integer value",
		Summary:    "Sets the string value and the time to live in seconds of a key.",
		Complexity: "O(1)", Grows: growsByLast, Handler: setexCommand,
	},
	{
		Name: "psetex", Kind: Write, Acts: actSet, Arity: 4, Flags: DenyOOM,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyOW | KeyUpdate), Group: "string",
		Since:      "2.6.0",
		Syntax:     "key milliseconds:integer value",
		Summary:    "Sets the string value and the time to live in milliseconds of a key.",
		Complexity: "O(1)", Grows: growsByLast, Handler: psetexCommand,
	},
	{
		Name: "get", Kind: Read, Acts: actLook, Arity: 2, Flags: WholeValues | Fast,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO | KeyAccess), Group: "string",
		Since:  "1.0.0",
		Syntax: "key", Summary: "Returns the string value of a key.", Complexity: "O(1)",
		Handler: getCommand,
	},
	{
		Name: "getset", Kind: Write, Acts: actSet, Arity: 3, Flags: WholeValues | DenyOOM | Fast,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate),
		Group: "string", Since: "1.0.0",
		Syntax:  "key value",
		Summary: "Sets the string value of a key and returns the previous one.", Complexity: "O(1)",
		Grows: growsByValue, Handler: getsetCommand,
	},
	{
		Name: "getdel", Kind: Write, Arity: 2, Flags: WholeValues | Fast,
		Acts:  actDelete | actAlone,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyDelete),
		Group: "string", Since: "6.2.0",
		Syntax: "key", Summary: "Returns the string value of a key and deletes the key.",
		Complexity: "O(1)", Handler: getdelCommand,
	},
	{
		Name: "getex", Kind: Write, Arity: -2, Flags: WholeValues | Fast,
		Acts:  actExpire | actAlone,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate),
		Group: "string", Since: "6.2.0",
		Syntax: "key [EX seconds:integer | PX milliseconds:integer | EXAT " +
			"unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | PERSIST]",
		Summary:    "Returns the string value of a key and sets or removes its time to live.",
		Complexity: "O(1)", Handler: getexCommand,
	},
	{
		Name: "append", Kind: Write, Arity: 3, Flags: DenyOOM | Fast,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyInsert), Group: "string",
		Since:      "2.0.0",
		Syntax:     "key value",
		Summary:    "Appends to the string value of a key. Creates the key if it doesn't exist.",
		Complexity: "O(N) where N is the length of the value appended", Handler: appendCommand,
	},
	{
		Name: "strlen", Kind: Read, Arity: 2, Flags: Fast,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO), Group: "string", Since: "2.2.0",
		Syntax: "key", Summary: "Returns the length in bytes of the string value of a key.",
		Complexity: "O(1)", Handler: strlenCommand,
	},
	{
		Name: "getrange", Kind: Read, Arity: 4,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO | KeyAccess), Group: "string",
		Since:      "2.4.0",
		Syntax:     "key start:integer end:integer",
		Summary:    "Returns a part of the string value of a key.",
		Complexity: "O(N) where N is the length of the part", Handler: getrangeCommand,
	},
	{
		Name: "lcs", Kind: Read, Arity: -3, Level: LevelSecond,
		Keys: KeySpec{First: 1, Last: 2, Step: 1}.does(KeyRO | KeyAccess), Group: "string",
		Since:  "7.0.0",
		Syntax: "key1:key key2:key [LEN] [IDX] [MINMATCHLEN min-match-len:integer] [WITHMATCHLEN]",
		Summary: "Finds the longest common subsequence of two strings, its length or its places " +
			"in them.",
		Complexity: "O(N*M) where N and M are the lengths of the strings", Handler: lcsCommand,
	},
	{
		Name: "substr", Kind: Read, Arity: 4,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO | KeyAccess), Group: "string",
		Since:      "1.0.0",
		Syntax:     "key start:integer end:integer",
		Summary:    "Returns a part of the string value of a key. An older name of GETRANGE.",
		Complexity: "O(N) where N is the length of the part", Handler: getrangeCommand,
	},
	{
		Name: "setrange", Kind: Write, Arity: 4, Flags: DenyOOM,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyUpdate), Group: "string",
		Since:  "2.2.0",
		Syntax: "key offset:integer value",
		Summary: "Overwrites a part of the string value of a key. Pads the string with zero " +
			"bytes if needed.",
		Complexity: "O(N) where N is the length of the value", Handler: setrangeCommand,
	},
	{
		Name: "incr", Kind: Write, Acts: actCount | actAlone, Arity: 2, Flags: DenyOOM | Fast,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate),
		Group: "string", Since: "1.0.0",
		Syntax:     "key",
		Summary:    "Increments the integer value of a key by one. A missing key counts as 0.",
		Complexity: "O(1)", Grows: growsKey, Handler: incrCommand,
	},
	{
		Name: "decr", Kind: Write, Acts: actCount | actLower, Arity: 2, Flags: DenyOOM | Fast,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate),
		Group: "string", Since: "1.0.0",
		Syntax:     "key",
		Summary:    "Decrements the integer value of a key by one. A missing key counts as 0.",
		Complexity: "O(1)", Grows: growsKey, Handler: decrCommand,
	},
	{
		Name: "incrby", Kind: Write, Acts: actCount | actAlone, Arity: 3, Flags: DenyOOM | Fast,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate),
		Group: "string", Since: "1.0.0",
		Syntax:     "key increment:integer",
		Summary:    "Increments the integer value of a key by a number. A missing key counts as 0.",
		Complexity: "O(1)", Grows: growsKey, Handler: incrbyCommand,
	},
	{
		Name: "decrby", Kind: Write, Acts: actCount | actLower, Arity: 3, Flags: DenyOOM | Fast,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate),
		Group: "string", Since: "1.0.0",
		Syntax:     "key decrement:integer",
		Summary:    "Decrements the integer value of a key by a number. A missing key counts as 0.",
		Complexity: "O(1)", Grows: growsKey, Handler: decrbyCommand,
	},
	{
		Name: "incrbyfloat", Kind: Write, Arity: 3, Flags: DenyOOM | Fast,
		Acts:  actCount | actAlone,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate),
		Group: "string", Since: "2.6.0",
		Syntax: "key increment:double",
		Summary: "Increments the floating-point value of a key by a number. A missing key counts " +
			"as 0.", Complexity: "O(1)", Handler: incrbyfloatCommand,
	},
	{
		Name: "mset", Kind: Write, Arity: -3, Flags: DenyOOM,
		Keys: KeySpec{First: 1, Last: -1, Step: 2}.does(KeyOW | KeyUpdate), Group: "string",
		Since:      "1.0.1",
		Syntax:     "key value [key value ...]",
		Summary:    "Sets the string values of several keys atomically.",
		Complexity: "O(N) where N is the number of keys", Handler: msetCommand,
	},
	{
		Name: "mget", Kind: Read, Arity: -2, Flags: WholeValues | Fast,
		Keys: KeySpec{First: 1, Last: -1, Step: 1}.does(KeyRO | KeyAccess), Group: "string",
		Since:  "1.0.0",
		Syntax: "key [key ...]", Summary: "Returns the string values of several keys.",
		Complexity: "O(N) where N is the number of keys", Handler: mgetCommand,
	},
	{
		Name: "msetnx", Kind: Write, Arity: -3, Flags: DenyOOM,
		Keys: KeySpec{First: 1, Last: -1, Step: 2}.does(KeyOW | KeyInsert), Group: "string",
		Since:  "1.0.1",
		Syntax: "key value [key value ...]",
		Summary: "Sets the string values of several keys atomically, only if none of the keys " +
			"exists.",
		Complexity: "O(N) where N is the number of keys", Handler: msetnxCommand,
	},
	{
		Name: "msetex", Kind: Write, Arity: -4, Flags: DenyOOM | MovableKeys, Level: LevelSecond,
		Keys:  KeySpec{Numkeys: 1, Step: 2}.does(KeyOW | KeyUpdate),
		Group: "string", Since: "8.4.0",
		Syntax: "numkeys:integer key value [key value ...] [NX | XX] [EX seconds:integer | " +
			"PX milliseconds:integer | EXAT unix-time-seconds:unix-time | " +
			"PXAT unix-time-milliseconds:unix-time | KEEPTTL]",
		Summary: "Sets the string values of several keys atomically, with one expire time for " +
			"all, optionally only if none or all of the keys exist.",
		Complexity: "O(N) where N is the number of keys", Handler: msetexCommand,
	},
	{
		Name: "delex", Kind: Write, Acts: actDelete | actAlone, Arity: -2, Flags: Fast,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyDelete),
		Group: "string", Since: "8.4.0",
		Syntax: "key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]",
		Summary: "Deletes a key if its string value meets a condition, for example to release " +
			"a lock.",
		Complexity: "O(N) where N is the length of the string", Handler: delexCommand,
	},
	{
		Name: "digest", Kind: Read, Arity: 2, Flags: Fast,
		Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO | KeyAccess), Group: "string",
		Since:      "8.4.0",
		Syntax:     "key",
		Summary:    "Returns the XXH3 hash of the string value of a key, as 16 hexadecimal digits.",
		Complexity: "O(N) where N is the length of the string", Handler: digestCommand,
	},
	{
		Name: "delifeq", Kind: Write, Acts: actDelete | actAlone, Arity: 3, Flags: Fast,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyDelete),
		Group: "string", Since: "9.0.0",
		Syntax: "key value",
		Summary: "Deletes a key if its string value equals a given one, for example to release a " +
			"lock.", Complexity: "O(1)", Handler: delifeqCommand,
	},
}
