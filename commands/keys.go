// This file declares the commands on keys of any type. Their handlers lie in keys_*.go.

package commands

var keySpecs = []Spec{
	{
		Name: "del", Kind: Write, Arity: -2, Keys: allKeys.does(KeyRM | KeyDelete), Group: "generic", Since: "1.0.0",
		Syntax: "key [key ...]", Summary: "Deletes keys and returns how many existed.",
		Complexity: "O(N) where N is the number of keys", Handler: delCommand,
	},
	{
		Name: "unlink", Kind: Write, Arity: -2, Flags: Fast, Keys: allKeys.does(KeyRM | KeyDelete), Group: "generic", Since: "4.0.0",
		Syntax: "key [key ...]", Summary: "Deletes keys and returns how many existed. Another name of DEL.",
		Complexity: "O(N) where N is the number of keys", Handler: delCommand,
	},
	{
		Name: "exists", Kind: Read, Arity: -2, Flags: Fast, Keys: allKeys.does(KeyRO), Group: "generic", Since: "1.0.0",
		Syntax: "key [key ...]", Summary: "Counts the keys that exist.",
		Complexity: "O(N) where N is the number of keys", Handler: existsCommand,
	},
	{
		Name: "touch", Kind: Read, Arity: -2, Flags: Fast, Keys: allKeys.does(KeyRO), Group: "generic", Since: "3.2.1",
		Syntax: "key [key ...]", Summary: "Counts the keys that exist. Leaves no trace of the access.",
		Complexity: "O(N) where N is the number of keys", Handler: existsCommand,
	},
	{
		Name: "type", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO), Group: "generic", Since: "1.0.0",
		Syntax: "key", Summary: "Returns the type of the value of a key.", Complexity: "O(1)", Handler: typeCommand,
	},
	{
		Name: "expire", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "1.0.0",
		Syntax: "key seconds:integer [NX | XX | GT | LT]", Summary: "Sets the time to live of a key in seconds.", Complexity: "O(1)", Handler: expireCommand,
	},
	{
		Name: "pexpire", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "2.6.0",
		Syntax: "key milliseconds:integer [NX | XX | GT | LT]", Summary: "Sets the time to live of a key in milliseconds.", Complexity: "O(1)", Handler: pexpireCommand,
	},
	{
		Name: "expireat", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "1.2.0",
		Syntax: "key unix-time-seconds:unix-time [NX | XX | GT | LT]", Summary: "Sets the expiration time of a key as a Unix timestamp in seconds.",
		Complexity: "O(1)", Handler: expireatCommand,
	},
	{
		Name: "pexpireat", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "2.6.0",
		Syntax: "key unix-time-milliseconds:unix-time [NX | XX | GT | LT]", Summary: "Sets the expiration time of a key as a Unix timestamp in milliseconds.",
		Complexity: "O(1)", Handler: pexpireatCommand,
	},
	{
		Name: "ttl", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "1.0.0",
		Syntax: "key", Summary: "Returns the remaining time to live of a key in seconds.", Complexity: "O(1)", Handler: ttlCommand,
	},
	{
		Name: "pttl", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "2.6.0",
		Syntax: "key", Summary: "Returns the remaining time to live of a key in milliseconds.", Complexity: "O(1)", Handler: pttlCommand,
	},
	{
		Name: "expiretime", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "7.0.0",
		Syntax: "key", Summary: "Returns the expiration time of a key as a Unix timestamp in seconds.", Complexity: "O(1)", Handler: expiretimeCommand,
	},
	{
		Name: "pexpiretime", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "7.0.0",
		Syntax: "key", Summary: "Returns the expiration time of a key as a Unix timestamp in milliseconds.", Complexity: "O(1)", Handler: pexpiretimeCommand,
	},
	{
		Name: "persist", Kind: Write, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "generic", Since: "2.2.0",
		Syntax: "key", Summary: "Removes the time to live of a key.", Complexity: "O(1)", Handler: persistCommand,
	},
	{
		Name: "keys", Kind: Read, Arity: 2, Group: "generic", Categories: "keyspace dangerous", Since: "1.0.0",
		Syntax: "pattern", Summary: "Returns all keys that match a pattern.",
		Complexity: "O(N) where N is the number of keys in the database", Handler: keysCommand,
	},
	{
		Name: "scan", Kind: Read, Arity: -2, Group: "generic", Since: "2.8.0",
		Syntax: "cursor:integer [MATCH pattern] [COUNT count:integer] [TYPE type]", Summary: "Iterates over the keys of the database.",
		Complexity: "O(C + log(N)) where C is the count and N the number of keys in the database", Handler: scanCommand,
	},
	{
		Name: "dbsize", Kind: Read, Arity: 1, Flags: Fast, Group: "server", Categories: "keyspace", Since: "1.0.0",
		Summary: "Returns the number of keys in the database.", Complexity: "O(1)", Handler: dbsizeCommand,
	},
	{
		Name: "randomkey", Kind: Read, Arity: 1, Group: "generic", Since: "1.0.0",
		Summary: "Returns a random key.", Complexity: "O(log(N)) where N is the number of keys in the database", Handler: randomkeyCommand,
	},
	{
		Name: "flushdb", Kind: Write, Arity: -1, Group: "server", Categories: "keyspace dangerous", Since: "1.0.0",
		Syntax: "[ASYNC | SYNC]", Summary: "Deletes all keys of the database.",
		Complexity: "O(1)", Handler: flushdbCommand,
	},
	{
		Name: "flushall", Kind: Write, Arity: -1, Flags: AnyDB, Group: "server", Categories: "keyspace dangerous", Since: "1.0.0",
		Syntax: "[ASYNC | SYNC]", Summary: "Deletes all keys of all databases.",
		Complexity: "O(1)", Handler: flushallCommand,
	},
	{
		Name: "rename", Kind: Write, Arity: 3, Keys: KeySpec{First: 1, Last: 2, Step: 1}.does(KeyRW|KeyAccess|KeyDelete, KeyOW|KeyUpdate), Group: "generic", Since: "1.0.0",
		Syntax: "key newkey:key", Summary: "Renames a key and overwrites the destination.", Complexity: "O(1)", Handler: renameCommand,
	},
	{
		Name: "renamenx", Kind: Write, Arity: 3, Flags: Fast, Keys: KeySpec{First: 1, Last: 2, Step: 1}.does(KeyRW|KeyAccess|KeyDelete, KeyOW|KeyInsert), Group: "generic", Since: "1.0.0",
		Syntax: "key newkey:key", Summary: "Renames a key only if the destination doesn't exist.", Complexity: "O(1)", Handler: renamenxCommand,
	},
	{
		Name: "copy", Kind: Write, Arity: -3, Flags: DenyOOM, Keys: KeySpec{First: 1, Last: 2, Step: 1}.does(KeyRO|KeyAccess, KeyOW|KeyUpdate), Group: "generic", Since: "6.2.0",
		Syntax: "source:key destination:key [DB destination-db:integer] [REPLACE]", Summary: "Copies the value of a key to another key.",
		Complexity: "O(1), the elements of a large collection being shared until they change", Handler: copyCommand,
	},
	{
		Name: "move", Kind: Write, Arity: 3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "generic", Since: "1.0.0",
		Syntax: "key db:integer", Summary: "Moves a key to another database unless it exists there.", Complexity: "O(1)", Handler: moveCommand,
	},
	{
		Name: "swapdb", Kind: Write, Arity: 3, Flags: Fast | AnyDB, Group: "server", Categories: "keyspace dangerous", Since: "4.0.0",
		Syntax: "index1:integer index2:integer", Summary: "Swaps two databases; connections see the other's keys at once.",
		Complexity: "O(1)", Handler: swapdbCommand,
	},
	{
		Name: "fence", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "0.1.0",
		Syntax: "key", Summary: "Returns the revision that created a key: a fencing token that grows with every holder of a lock.",
		Complexity: "O(1)", Handler: fenceCommand,
	},
	objectSpec,
}

var objectSpec = Spec{
	Name: "object", Kind: Read, Arity: -2, Group: "generic", Since: "2.2.3",
	Summary: "Reports how values are stored.", Complexity: "Depends on the subcommand",
	Subcommands: []Spec{
		{
			Name: "encoding", Kind: Read, Arity: 3, Keys: KeySpec{First: 2, Last: 2, Step: 1}.does(KeyRO), Group: "generic", Since: "2.2.3",
			Syntax: "key", Summary: "Returns the encoding of the value of a key, by Redis's names.", Complexity: "O(1)", Handler: objectEncodingCommand,
		},
		{
			Name: "freq", Kind: Read, Arity: 3, Keys: KeySpec{First: 2, Last: 2, Step: 1}.does(KeyRO), Group: "generic", Since: "4.0.0",
			Syntax: "key", Summary: "Returns an error, since access frequency is not tracked.", Complexity: "O(1)", Handler: objectFreqCommand,
		},
		{
			Name: "help", Kind: Read, Arity: 2, Flags: Loading | Stale, Group: "generic", Since: "6.2.0",
			Summary: "Lists the subcommands of OBJECT.", Complexity: "O(1)", Handler: objectHelpCommand,
		},
		{
			Name: "idletime", Kind: Read, Arity: 3, Keys: KeySpec{First: 2, Last: 2, Step: 1}.does(KeyRO), Group: "generic", Since: "2.2.3",
			Syntax: "key", Summary: "Returns an error, since idle time is not tracked.", Complexity: "O(1)", Handler: objectIdletimeCommand,
		},
		{
			Name: "refcount", Kind: Read, Arity: 3, Keys: KeySpec{First: 2, Last: 2, Step: 1}.does(KeyRO), Group: "generic", Since: "2.2.3",
			Syntax: "key", Summary: "Returns the reference count of the value of a key, as Redis counts.", Complexity: "O(1)", Handler: objectRefcountCommand,
		},
	},
}
