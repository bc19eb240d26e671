// Package objects coordinates a fleet of hosts through small records in a shared
// bucket. An object guards one dependency with the fleet's circuit breaker, or
// gives out leases with fencing tokens and keeps state under them. It knows no
// network: a caller asks, acts, and says what came of it. Any Go service may use
// it; see the examples.
//
// # Promises
//
//   - One accepted writer. Every change of a record is a compare-and-swap. Every
//     grant has a larger fence than all before, renewals keep it, and a write under
//     an older fence is refused and counted. Reads are hints: everything here holds
//     if every read is arbitrarily stale.
//   - One accepted probe. When a breaker's cooldown is over, one caller in the
//     fleet may try the dependency. All others get a retry time and send nothing. A
//     verdict counts only with the generation and the fence of the accepted probe.
//   - Nothing is answered before it is durable, to callers in the same process
//     neither.
//   - A healthy dependency costs nothing: Admit and Report read a few words of
//     memory, take no lock, allocate nothing and send nothing, until a call fails. By
//     a rate they count under a lock of this host's, and send as little.
//   - Losing the store stops no traffic. Closed breakers go on by what the host
//     knew last, guarded by its own run of failures. Leases end at their holder's own
//     deadline. Nothing is granted. When the store is back, everything goes on.
//
// It does not promise that a paused holder stops: it is only no longer accepted.
// Who performs an effect outside has to look at the fence. Reads are not
// linearizable.
//
// # How it works
//
// A dependency is the record "o.<namespace>.<name>". The leases of a class of
// objects are in 64 pages, "l.<namespace>.<class>.<page>", which hold only what is
// held. A state key is "s.<namespace>.<object>.<lease>.<key>". All are readable
// JSON with the version of their schema; a record of a newer version is refused and
// never written over.
//
// A record of the first two kinds has an owner: the host that touched it first, in
// an epoch. The owner takes every command that waits, applies them in order to a
// copy, writes the copy once, and then releases the answers, so a batch costs one
// write however many callers it has. Hosts that have a messenger send their commands
// to the owner they last heard of, and read and claim the record only if nobody
// takes them; without one, each claims what it is asked about. Owning a record is a
// hint too. Any host may claim it, with a new epoch, and the former owner finds out
// by its next write, which is refused, steps down, and answers that it is not the
// owner. A command may arrive twice, or at two owners: it names what it changes, so
// it has its effect once. A write whose answer got lost is recognised by
// the commit id that it left in the record. What is done to a record is decided by
// pure functions in internal/record; only store.go writes to the bucket.
//
// No wall clock decides between hosts. A holder may act for 0.8 of the ttl from
// when it sent the request that was committed, by the larger of its monotonic and
// its wall clock, so that a suspended machine stops early. An owner ends a lease
// after 1.1 of the ttl by its own monotonic clock, and stores how much has passed,
// so that its successor need not start over: now and then, and often if its
// predecessor was killed before it had stored anything.
//
// A host tells the owner of its first failure at once, and of more at most every
// 50 ms; while the record shows a run of failures it tells of successes too, which
// end the run. A breaker by a rate is told what the windows of all hosts hold, for as
// long as one of them holds a call that failed or was slow. Openings reach the other hosts by a watch and, should that be dead,
// by a read every 4 s of the breakers in use.
//
// # Cost
//
// Admit and Report of a healthy dependency take 20 nanoseconds, and 200 by a rate. A
// grant, a
// renewal or a release is one write. A dependency that fails now and then costs two
// writes a failure; one that fails constantly, twenty a second and host. An idle
// object has no goroutine, sends nothing, and takes less than 2 KiB of memory.
package objects
