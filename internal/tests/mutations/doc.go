// Package mutations knows the planted bugs in testdata/mutations: patches of the product, each with
// the test that must fail once it is applied.
package mutations
