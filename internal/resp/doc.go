// Package resp reads and writes the Redis protocol, versions 2 and 3. It is the only place that
// knows its bytes, except for the server's parser of requests (redcon, and the framing before it).
//
// # Values
//
// A value starts with a line: a type byte, a text, CR LF. The text is the whole value (status,
// error, integer, double, boolean, big number, null), the length of a string that follows, or the
// number of values that follow (array, set, push, map, attribute). [Head] is that line. RESP2 has
// the types + - : $ * and writes null as the length -1; RESP3 has all of them.
//
// # Reading
//
// Choose by what you keep:
//
//   - [Reader.Value] returns a tree.
//   - [Reader.AppendRaw] returns the bytes of a whole value.
//   - [Reader.Skip] discards a value and returns its head. It keeps nothing.
//   - [Reader.Head] and [Reader.Text] read a large string as a stream.
//   - [Replies] is what a client of a server reads with: replies, without the pushes among them.
//   - [Len] and [Elements] find the values in a slice. They copy nothing and do not allocate.
//
// A peer may be broken or hostile. [Limits] bound lines, strings, element counts and depth, memory
// grows only with the bytes that arrive, and no input panics. An error wraps [ErrMalformed] or
// [ErrTooLarge], or comes from the connection; after one the stream has no boundary to continue at.
// At the end of the stream the error is io.EOF between values and io.ErrUnexpectedEOF inside one.
//
// # Writing
//
// [AppendCommand] and [AppendCall] append a request: an array of bulk strings. [Value.Append]
// appends a tree in either version. AppendHead, AppendLine, AppendText and AppendBulk are the
// pieces. commands.RESP writes the replies of commands with them: it decides the form of a reply in
// each version and knows the limits on replies, which are coordd's and not the protocol's.
//
// [Value.String] writes a value on one line, in the notation of the scenario files.
//
// The package is pure: it reads what it is given and knows no clock and no connection.
package resp
