// Package conformance checks that a host keeps the guest ABI of guests/abi, and
// holds small guests, assembled here without any SDK or tool, for tests of
// hosts: guests that fail in every way that a host must survive, modules that
// it must refuse, and the smallest guests that work.
package conformance
