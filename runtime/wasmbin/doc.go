// Package wasmbin reads, rewrites and writes core WebAssembly modules in the
// binary format of the core specification, release 2.0: what wazero accepts with
// api.CoreFeaturesV2. Of the later proposals that wazero takes for granted in
// places, typed function references and tables with an initial value, it takes
// none.
//
// Decode and Encode are inverses, but for integers and sections that could be
// shorter. Interface tells what a host needs to judge a module. Meter is the first
// rewriting: it makes a module count its work and ask for more, so that a host
// can stop it, share the processor, and let its own collector run. Expose comes
// after it, and makes instances restorable.
package wasmbin
