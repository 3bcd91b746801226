// Package packages has what the deb and the rpm consist of besides the binary, and tests of their
// scripts.
package packages
