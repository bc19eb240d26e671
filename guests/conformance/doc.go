// Package conformance checks hosts and SDKs against the guest ABI of guests/abi.
//
// Run checks a host, call by call, with a guest that knows no SDK. RunSDK checks
// an SDK by a guest that was written with it, described in SDK.md.
//
// The package also has small guests, assembled here without any tool, for other
// tests of hosts: guests that fail in every way that a host must survive,
// modules that it must refuse, and the smallest guests that work.
package conformance
