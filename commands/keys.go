package commands

// This file declares the commands on keys of any type. Their handlers lie in keys_*.go.

var keySpecs = []Spec{
	{
		Name: "del", Kind: Write, Arity: -2, Keys: allKeys.does(KeyRM | KeyDelete), Group: "generic", Since: "1.0.0",
		Syntax: "key [key ...]", Summary: "Deletes keys and answers how many existed.",
		Complexity: "O(N) where N is the number of keys", Handler: delCommand,
	},
	{
		Name: "unlink", Kind: Write, Arity: -2, Flags: Fast, Keys: allKeys.does(KeyRM | KeyDelete), Group: "generic", Since: "4.0.0",
		Syntax: "key [key ...]", Summary: "Deletes keys and answers how many existed: DEL by another name.",
		Complexity: "O(N) where N is the number of keys", Handler: delCommand,
	},
	{
		Name: "exists", Kind: Read, Arity: -2, Flags: Fast, Keys: allKeys.does(KeyRO), Group: "generic", Since: "1.0.0",
		Syntax: "key [key ...]", Summary: "Answers how many of the keys exist.",
		Complexity: "O(N) where N is the number of keys", Handler: existsCommand,
	},
	{
		Name: "touch", Kind: Read, Arity: -2, Flags: Fast, Keys: allKeys.does(KeyRO), Group: "generic", Since: "3.2.1",
		Syntax: "key [key ...]", Summary: "Answers how many of the keys exist; accesses leave no trace.",
		Complexity: "O(N) where N is the number of keys", Handler: existsCommand,
	},
	{
		Name: "type", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO), Group: "generic", Since: "1.0.0",
		Syntax: "key", Summary: "Answers the type of the value that a key holds.", Complexity: "O(1)", Handler: typeCommand,
	},
	{
		Name: "expire", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "1.0.0",
		Syntax: "key seconds:integer [NX | XX | GT | LT]", Summary: "Sets a key's time to live in seconds.", Complexity: "O(1)", Handler: expireCommand,
	},
	{
		Name: "pexpire", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "2.6.0",
		Syntax: "key milliseconds:integer [NX | XX | GT | LT]", Summary: "Sets a key's time to live in milliseconds.", Complexity: "O(1)", Handler: pexpireCommand,
	},
	{
		Name: "expireat", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "1.2.0",
		Syntax: "key unix-time-seconds:unix-time [NX | XX | GT | LT]", Summary: "Sets the Unix time in seconds at which a key expires.",
		Complexity: "O(1)", Handler: expireatCommand,
	},
	{
		Name: "pexpireat", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "2.6.0",
		Syntax: "key unix-time-milliseconds:unix-time [NX | XX | GT | LT]", Summary: "Sets the Unix time in milliseconds at which a key expires.",
		Complexity: "O(1)", Handler: pexpireatCommand,
	},
	{
		Name: "ttl", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "1.0.0",
		Syntax: "key", Summary: "Answers a key's time to live in seconds.", Complexity: "O(1)", Handler: ttlCommand,
	},
	{
		Name: "pttl", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "2.6.0",
		Syntax: "key", Summary: "Answers a key's time to live in milliseconds.", Complexity: "O(1)", Handler: pttlCommand,
	},
	{
		Name: "expiretime", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "7.0.0",
		Syntax: "key", Summary: "Answers the Unix time in seconds at which a key expires.", Complexity: "O(1)", Handler: expiretimeCommand,
	},
	{
		Name: "pexpiretime", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "7.0.0",
		Syntax: "key", Summary: "Answers the Unix time in milliseconds at which a key expires.", Complexity: "O(1)", Handler: pexpiretimeCommand,
	},
	{
		Name: "persist", Kind: Write, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "2.2.0",
		Syntax: "key", Summary: "Removes a key's time to live.", Complexity: "O(1)", Handler: persistCommand,
	},
	{
		Name: "keys", Kind: Read, Arity: 2, Group: "generic", Categories: "keyspace dangerous", Since: "1.0.0",
		Syntax: "pattern", Summary: "Answers every key that a pattern matches.",
		Complexity: "O(N) where N is the number of keys in the database", Handler: keysCommand,
	},
	{
		Name: "scan", Kind: Read, Arity: -2, Group: "generic", Since: "2.8.0",
		Syntax: "cursor:integer [MATCH pattern] [COUNT count:integer] [TYPE type]", Summary: "Answers some of the keys and the cursor to go on from.",
		Complexity: "O(C + log(N)) where C is the count and N the number of keys in the database", Handler: scanCommand,
	},
	{
		Name: "dbsize", Kind: Read, Arity: 1, Flags: Fast, Group: "server", Categories: "keyspace", Since: "1.0.0",
		Summary: "Answers how many keys the database has.", Complexity: "O(1)", Handler: dbsizeCommand,
	},
	{
		Name: "randomkey", Kind: Read, Arity: 1, Group: "generic", Since: "1.0.0",
		Summary: "Answers a key picked at random.", Complexity: "O(log(N)) where N is the number of keys in the database", Handler: randomkeyCommand,
	},
	{
		Name: "flushdb", Kind: Write, Arity: -1, Group: "server", Categories: "keyspace dangerous", Since: "1.0.0",
		Syntax: "[ASYNC | SYNC]", Summary: "Deletes every key of the database.",
		Complexity: "O(1)", Handler: flushdbCommand,
	},
	{
		Name: "flushall", Kind: Write, Arity: -1, Flags: AnyDB, Group: "server", Categories: "keyspace dangerous", Since: "1.0.0",
		Syntax: "[ASYNC | SYNC]", Summary: "Deletes every key of all databases.",
		Complexity: "O(1)", Handler: flushallCommand,
	},
	{
		Name: "rename", Kind: Write, Arity: 3, Keys: KeySpec{First: 1, Last: 2, Step: 1}.does(KeyRW|KeyAccess|KeyDelete, KeyOW|KeyUpdate), Group: "generic", Since: "1.0.0",
		Syntax: "key newkey:key", Summary: "Gives a key another name, overwriting what had it.", Complexity: "O(1)", Handler: renameCommand,
	},
	{
		Name: "renamenx", Kind: Write, Arity: 3, Flags: Fast, Keys: KeySpec{First: 1, Last: 2, Step: 1}.does(KeyRW|KeyAccess|KeyDelete, KeyOW|KeyInsert), Group: "generic", Since: "1.0.0",
		Syntax: "key newkey:key", Summary: "Gives a key another name unless that is taken.", Complexity: "O(1)", Handler: renamenxCommand,
	},
	{
		Name: "copy", Kind: Write, Arity: -3, Flags: DenyOOM, Keys: KeySpec{First: 1, Last: 2, Step: 1}.does(KeyRO|KeyAccess, KeyOW|KeyUpdate), Group: "generic", Since: "6.2.0",
		Syntax: "source:key destination:key [DB destination-db:integer] [REPLACE]", Summary: "Copies the value of a key to another key.",
		Complexity: "O(1), the elements of a large collection being shared until they change", Handler: copyCommand,
	},
	{
		Name: "move", Kind: Write, Arity: 3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "generic", Since: "1.0.0",
		Syntax: "key db:integer", Summary: "Moves a key to another database unless that has it.", Complexity: "O(1)", Handler: moveCommand,
	},
	{
		Name: "swapdb", Kind: Write, Arity: 3, Flags: Fast | AnyDB, Group: "server", Categories: "keyspace dangerous", Since: "4.0.0",
		Syntax: "index1:integer index2:integer", Summary: "Exchanges two databases: their clients see the other's keys at once.",
		Complexity: "O(1)", Handler: swapdbCommand,
	},
	{
		Name: "fence", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "0.1.0",
		Syntax: "key", Summary: "Answers the revision that created a key: a fencing token, larger for every later holder of a lock.",
		Complexity: "O(1)", Handler: fenceCommand,
	},
	objectSpec,
}

var objectSpec = Spec{
	Name: "object", Kind: Read, Arity: -2, Group: "generic", Since: "2.2.3",
	Summary: "Holds the commands about how values are kept.", Complexity: "Depends on the subcommand",
	Subcommands: []Spec{
		{
			Name: "encoding", Kind: Read, Arity: 3, Keys: KeySpec{First: 2, Last: 2, Step: 1}.does(KeyRO), Group: "generic", Since: "2.2.3",
			Syntax: "key", Summary: "Answers the form in which a key's value is kept, by Redis's names.", Complexity: "O(1)", Handler: objectEncodingCommand,
		},
		{
			Name: "freq", Kind: Read, Arity: 3, Keys: KeySpec{First: 2, Last: 2, Step: 1}.does(KeyRO), Group: "generic", Since: "4.0.0",
			Syntax: "key", Summary: "Would answer how often a key is used, which is not tracked.", Complexity: "O(1)", Handler: objectFreqCommand,
		},
		{
			Name: "help", Kind: Read, Arity: 2, Flags: Loading | Stale, Group: "generic", Since: "6.2.0",
			Summary: "Answers what the subcommands of OBJECT do.", Complexity: "O(1)", Handler: objectHelpCommand,
		},
		{
			Name: "idletime", Kind: Read, Arity: 3, Keys: KeySpec{First: 2, Last: 2, Step: 1}.does(KeyRO), Group: "generic", Since: "2.2.3",
			Syntax: "key", Summary: "Would answer how long a key has not been used, which is not tracked.", Complexity: "O(1)", Handler: objectIdletimeCommand,
		},
		{
			Name: "refcount", Kind: Read, Arity: 3, Keys: KeySpec{First: 2, Last: 2, Step: 1}.does(KeyRO), Group: "generic", Since: "2.2.3",
			Syntax: "key", Summary: "Answers how many references a key's value has, as Redis counts them.", Complexity: "O(1)", Handler: objectRefcountCommand,
		},
	},
}
