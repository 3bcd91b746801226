// The names of system requests, which a Request with System makes: what administrators and nodes
// ask of the machine by other means than a command.

package commands

// Settings that all nodes share.
const (
	// SettingNotify selects the keyspace notifications, as CONFIG SET does.
	SettingNotify = "notify-keyspace-events"

	// The others are there from LevelSecond on. Passwords are in them as hashes.

	// SettingPassword is the password of the default user, as CONFIG SET requirepass gives it.
	// None: the user needs no password.
	SettingPassword = "requirepass"
	// SettingUsers replaces all users by those of a file, whose text follows, as ACL LOAD does.
	// Read, it is such a text, for ACL SAVE.
	SettingUsers = "users"
	// SettingFirstUsers is SettingUsers of a node at its start, without a user. It does nothing
	// once users were changed.
	SettingFirstUsers = "first-users"
	// SettingDefaultUser changes the default user. The revision of the newest change of users, in
	// decimal, and rules follow; the reply is OK, or ErrUsersChanged if there is a newer one. A
	// node sends it at its start, without a user, if its operator asks for it.
	SettingDefaultUser = "default-user"
	// SettingMaxMemory is what the data may count, bytes in decimal, as CONFIG SET maxmemory gives
	// it; 0: as much as there is.
	SettingMaxMemory = "maxmemory"
	// SettingFirstMaxMemory is SettingMaxMemory of a node at its start, without a user. It does
	// nothing once the limit was set.
	SettingFirstMaxMemory = "first-maxmemory"
	// SettingRequestWork is how many times MaxRequestWork a request may do, in decimal, from 1 to
	// MostRequestWork.
	SettingRequestWork = "coordd-request-work"
	// SettingTime sets the time of day: ms since 1970 follow, in decimal.
	SettingTime = "time"
)

// What nodes ask for. All of it needs LevelSecond.
const (
	// SystemLeaveWait ends the wait whose number follows, in decimal, and gives up what it was
	// granted. The reply is OK, or ErrNotWaiting.
	SystemLeaveWait = "leave-wait"
	// SystemClaim claims what the wait whose number follows, in decimal, was granted. If a token
	// follows, only what was granted with that one: a wait that is sent again can be granted twice.
	// The reply is OK, also if it was claimed before, or ErrNotWaiting: then somebody else may have
	// it.
	SystemClaim = "claim"
	// SystemGiveBack puts back what a wait was given whose client was gone by then, in parts: its
	// number follows, that of the part, from 0, how many parts there are, all in decimal, and a
	// command that puts it back, which runs for nobody. The reply is OK, also if that part was put
	// back before, or ErrNotLent.
	SystemGiveBack = "give-back"
	// SystemDropWaits ends all waits of the node whose id follows: the leader does not reach it.
	SystemDropWaits = "drop-waits"
	// SystemForgetWaits has nobody wait for the waits of the node whose id follows that a change
	// of leader has dropped: the new leader does not reach it. Its places in queues for locks stay.
	SystemForgetWaits = "forget-waits"
	// SystemServeWaits serves those who wait although not all waits are back that a change of
	// leader has dropped: their nodes have had their time.
	SystemServeWaits = "serve-waits"
	// SystemInTerm is another setting that changes something only in a term of Raft's: the leader
	// of that term has decided it by what it knew of the nodes. The term, in decimal, and the other
	// setting follow. In another term the reply is ErrOtherTerm.
	SystemInTerm = "in-term"
	// SystemSubscribers is how many subscribers a node has. The node's id, the era of its counts,
	// a sequence number, and pairs of a name and its count follow, numbers in decimal; a name
	// begins with one of subscriptions.Letters. The reply is 0, or the era of the node's counts if
	// it is another one: then nothing was taken.
	SystemSubscribers = "subscribers"
	// SystemDropSubscribers drops the counts of the node whose id follows: the leader does not
	// reach it, or it has just begun. The reply is the era of its counts from now on.
	SystemDropSubscribers = "drop-subscribers"
	// SystemClientIDs gives a node ClientIDBlock ids for its connections. The reply is the first.
	SystemClientIDs = "client-ids"
	// SystemEndHolder has the leases of a connection end after their grace, since it has closed:
	// the node's id and the connection's follow. The reply is 1 if there is more to do, else 0.
	SystemEndHolder = "end-holder"
	// SystemDropHolders has the leases of all connections of the node whose id follows end after
	// their grace: the leader does not reach it. If an id follows too, only those of connections of
	// smaller ids: the node has just begun, and they were of an earlier process. The reply is as
	// for SystemEndHolder.
	SystemDropHolders = "drop-holders"
	// SystemKeepHolder takes back what SystemDropHolders has done to the leases of a connection
	// that is there: the node's id and the connection's follow. The reply is as for
	// SystemEndHolder.
	SystemKeepHolder = "keep-holder"
	// SystemRefuseScript refuses a script from now on: the ID of a ScriptVerdict and its TookMs,
	// in decimal, follow. A node sends it whose processor time the script took in an entry.
	SystemRefuseScript = "refuse-script"
	// SystemAllowScript lets the script run that was refused and whose ID follows, for good. The
	// reply is OK, or ErrNotRefused.
	SystemAllowScript = "allow-script"

	// SystemAuth is only read. A hash, or a name and a hash, follow; the reply is the revision
	// that created the user, or ErrWrongPass.
	SystemAuth = "auth"
	// SystemUser is SystemAuth for a user who needs no password: a certificate names it.
	SystemUser = "user"
)

// Ids of connections from FirstClientID on are unique in a cluster: the machine gives each process
// of a node blocks of ClientIDBlock. Smaller ones are a process's own. JavaScript's numbers hold
// all below 2^53 exactly.
const (
	FirstClientID = 1 << 32
	ClientIDBlock = 1 << 20
)

// ClaimMs is how long a node may claim what a wait was granted, ms of the cluster clock. What is
// older when a client would be told of it may be over.
const ClaimMs = 1000

// MostRequestWork is the most that SettingRequestWork takes.
const MostRequestWork = 10

// ErrNoSystemRequest is the error for a setting that the machine does not know, or not yet.
const ErrNoSystemRequest Error = "ERR no such setting"

// ErrNotWaiting is the error for leaving a wait that the machine does not have: it has been served,
// or dropped.
const ErrNotWaiting Error = "ERR no such wait"

// ErrOtherTerm is the error for SystemInTerm once another leader may know better.
const ErrOtherTerm Error = "ERR that was decided in another term"

// ErrNotLent is the error for giving back what is not lent any more.
const ErrNotLent Error = "ERR nothing is lent to that wait"

// ErrUsersChanged is the error for SettingDefaultUser once others changed the users, or it did.
const ErrUsersChanged Error = "ERR the users were changed since"

// ErrNotRefused is the error for allowing a script that the machine does not refuse.
const ErrNotRefused Error = "ERR no such script was refused"

// Errors about users that several parts give.
const (
	ErrNoAuth     Error = "NOAUTH Authentication required."
	ErrWrongPass  Error = "WRONGPASS invalid username-password pair or user is disabled."
	ErrNoPassword Error = "ERR AUTH <password> called without any password configured for the " +
		"default user. Are you sure your configuration is correct?"
	ErrUserGone Error = "NOPERM the user of this connection was removed"
)
