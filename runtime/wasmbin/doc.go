// Package wasmbin reads and rewrites core WebAssembly modules.
package wasmbin
