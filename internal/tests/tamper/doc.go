// Package tamper changes what a connection sends, as somebody between its ends can.
package tamper
