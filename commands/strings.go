package commands

// This file declares the commands on strings. Their handlers lie in strings_*.go.

var stringSpecs = []Spec{
	{
		Name: "set", Kind: Write, Arity: -3, Flags: DenyOOM, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate | KeyVariable).varies(setUses), Group: "string", Since: "1.0.0",
		Syntax: "key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] " +
			"[EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | KEEPTTL]",
		Summary: "Sets a key to a string, on a condition and with a time to live if wanted.", Complexity: "O(1)", Handler: setCommand,
	},
	{
		Name: "setnx", Kind: Write, Arity: 3, Flags: DenyOOM | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyOW | KeyInsert), Group: "string", Since: "1.0.0",
		Syntax: "key value", Summary: "Sets a key to a string unless the key exists.", Complexity: "O(1)", Handler: setnxCommand,
	},
	{
		Name: "setex", Kind: Write, Arity: 4, Flags: DenyOOM, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyOW | KeyUpdate), Group: "string", Since: "2.0.0",
		Syntax: "key seconds:integer value", Summary: "Sets a key to a string with a time to live in seconds.", Complexity: "O(1)", Handler: setexCommand,
	},
	{
		Name: "psetex", Kind: Write, Arity: 4, Flags: DenyOOM, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyOW | KeyUpdate), Group: "string", Since: "2.6.0",
		Syntax: "key milliseconds:integer value", Summary: "Sets a key to a string with a time to live in milliseconds.", Complexity: "O(1)", Handler: psetexCommand,
	},
	{
		Name: "get", Kind: Read, Arity: 2, Flags: WholeValues | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO | KeyAccess), Group: "string", Since: "1.0.0",
		Syntax: "key", Summary: "Answers the string that a key holds.", Complexity: "O(1)", Handler: getCommand,
	},
	{
		Name: "getset", Kind: Write, Arity: 3, Flags: WholeValues | DenyOOM | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "1.0.0",
		Syntax: "key value", Summary: "Sets a key to a string and answers the one that it held.", Complexity: "O(1)", Handler: getsetCommand,
	},
	{
		Name: "getdel", Kind: Write, Arity: 2, Flags: WholeValues | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyDelete), Group: "string", Since: "6.2.0",
		Syntax: "key", Summary: "Deletes a key and answers the string that it held.", Complexity: "O(1)", Handler: getdelCommand,
	},
	{
		Name: "getex", Kind: Write, Arity: -2, Flags: WholeValues | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "6.2.0",
		Syntax:  "key [EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | PERSIST]",
		Summary: "Answers the string that a key holds and sets or removes its time to live.", Complexity: "O(1)", Handler: getexCommand,
	},
	{
		Name: "append", Kind: Write, Arity: 3, Flags: DenyOOM | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyInsert), Group: "string", Since: "2.0.0",
		Syntax: "key value", Summary: "Appends to the string that a key holds, creating the key where there is none.",
		Complexity: "O(N) where N is the length of the value appended", Handler: appendCommand,
	},
	{
		Name: "strlen", Kind: Read, Arity: 2, Flags: Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO), Group: "string", Since: "2.2.0",
		Syntax: "key", Summary: "Answers the length of the string that a key holds, in bytes.", Complexity: "O(1)", Handler: strlenCommand,
	},
	{
		Name: "getrange", Kind: Read, Arity: 4, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO | KeyAccess), Group: "string", Since: "2.4.0",
		Syntax: "key start:integer end:integer", Summary: "Answers a part of the string that a key holds.",
		Complexity: "O(N) where N is the length of the part", Handler: getrangeCommand,
	},
	{
		Name: "substr", Kind: Read, Arity: 4, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO | KeyAccess), Group: "string", Since: "1.0.0",
		Syntax: "key start:integer end:integer", Summary: "GETRANGE by its old name.",
		Complexity: "O(N) where N is the length of the part", Handler: getrangeCommand,
	},
	{
		Name: "setrange", Kind: Write, Arity: 4, Flags: DenyOOM, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyUpdate), Group: "string", Since: "2.2.0",
		Syntax: "key offset:integer value", Summary: "Writes over a part of the string that a key holds, from an offset on, after zero bytes where it is shorter.",
		Complexity: "O(N) where N is the length of the value", Handler: setrangeCommand,
	},
	{
		Name: "incr", Kind: Write, Arity: 2, Flags: DenyOOM | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "1.0.0",
		Syntax: "key", Summary: "Adds one to the integer that a key holds; a key that does not exist counts as 0.", Complexity: "O(1)", Handler: incrCommand,
	},
	{
		Name: "decr", Kind: Write, Arity: 2, Flags: DenyOOM | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "1.0.0",
		Syntax: "key", Summary: "Takes one from the integer that a key holds; a key that does not exist counts as 0.", Complexity: "O(1)", Handler: decrCommand,
	},
	{
		Name: "incrby", Kind: Write, Arity: 3, Flags: DenyOOM | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "1.0.0",
		Syntax: "key increment:integer", Summary: "Adds to the integer that a key holds; a key that does not exist counts as 0.", Complexity: "O(1)", Handler: incrbyCommand,
	},
	{
		Name: "decrby", Kind: Write, Arity: 3, Flags: DenyOOM | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "1.0.0",
		Syntax: "key decrement:integer", Summary: "Takes from the integer that a key holds; a key that does not exist counts as 0.", Complexity: "O(1)", Handler: decrbyCommand,
	},
	{
		Name: "incrbyfloat", Kind: Write, Arity: 3, Flags: DenyOOM | Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "2.6.0",
		Syntax: "key increment:double", Summary: "Adds to the number that a key holds; a key that does not exist counts as 0.", Complexity: "O(1)", Handler: incrbyfloatCommand,
	},
	{
		Name: "mset", Kind: Write, Arity: -3, Flags: DenyOOM, Keys: KeySpec{First: 1, Last: -1, Step: 2}.does(KeyOW | KeyUpdate), Group: "string", Since: "1.0.1",
		Syntax: "key value [key value ...]", Summary: "Sets several keys to strings at once.",
		Complexity: "O(N) where N is the number of keys", Handler: msetCommand,
	},
	{
		Name: "mget", Kind: Read, Arity: -2, Flags: WholeValues | Fast, Keys: KeySpec{First: 1, Last: -1, Step: 1}.does(KeyRO | KeyAccess), Group: "string", Since: "1.0.0",
		Syntax: "key [key ...]", Summary: "Answers the strings that several keys hold.",
		Complexity: "O(N) where N is the number of keys", Handler: mgetCommand,
	},
	{
		Name: "msetnx", Kind: Write, Arity: -3, Flags: DenyOOM, Keys: KeySpec{First: 1, Last: -1, Step: 2}.does(KeyOW | KeyInsert), Group: "string", Since: "1.0.1",
		Syntax: "key value [key value ...]", Summary: "Sets several keys to strings at once unless one of them exists.",
		Complexity: "O(N) where N is the number of keys", Handler: msetnxCommand,
	},
	{
		Name: "delex", Kind: Write, Arity: -2, Flags: Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyDelete), Group: "string", Since: "8.4.0",
		Syntax:     "key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]",
		Summary:    "Deletes a key on a condition about the string that it holds: the release of a lock.",
		Complexity: "O(N) where N is the length of the string", Handler: delexCommand,
	},
	{
		Name: "digest", Kind: Read, Arity: 2, Flags: Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRO | KeyAccess), Group: "string", Since: "8.4.0",
		Syntax: "key", Summary: "Answers the XXH3 hash of the string that a key holds, as 16 hexadecimal digits.",
		Complexity: "O(N) where N is the length of the string", Handler: digestCommand,
	},
	{
		Name: "delifeq", Kind: Write, Arity: 3, Flags: Fast, Keys: KeySpec{First: 1, Last: 1, Step: 1}.does(KeyRW | KeyAccess | KeyDelete), Group: "string", Since: "9.0.0",
		Syntax: "key value", Summary: "Deletes a key if it holds the given string: Valkey's release of a lock.", Complexity: "O(1)", Handler: delifeqCommand,
	},
}
