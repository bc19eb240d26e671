// Command secrets hides a secret wherever a request can leave something, and
// looks for what another one has left.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	mathrand "math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
)

func init() {
	edge.Handle(serve)
	go func() { <-begin }() // it is there for every request
	runtime.Gosched()
}

func main() {}

var (
	begin  = make(chan struct{})
	begun  = time.Now()
	seed   = maphash.MakeSeed()
	kept   string
	served int
	pool   sync.Pool
	table  = make(map[string]string)
	grown  [][]byte
	lock   sync.Mutex
	timers []*time.Timer
)

var handlers = map[string]edge.Handler{
	"hide":  hide,
	"seek":  seek,
	"panic": func(_ *edge.ResponseWriter, r *edge.Request) { remember(r); panic("the guest has had enough") },
	"crash": func(_ *edge.ResponseWriter, r *edge.Request) {
		remember(r)
		go panic("nobody recovers")
		runtime.Gosched()
	},
	"deadlock": func(_ *edge.ResponseWriter, r *edge.Request) { remember(r); lock.Lock(); lock.Lock() },
	"exit":     func(_ *edge.ResponseWriter, r *edge.Request) { remember(r); os.Exit(3) },
	"loop":     func(_ *edge.ResponseWriter, r *edge.Request) { remember(r); spin() },
	"recurse":  func(_ *edge.ResponseWriter, r *edge.Request) { remember(r); table["depth"] = fmt.Sprint(recurse(1)) },
	"eat":      func(_ *edge.ResponseWriter, r *edge.Request) { remember(r); eat() },
	"random":   random,
}

func serve(w *edge.ResponseWriter, r *edge.Request) {
	served++
	handlers[r.PathValue("what")](w, r)
}

func remember(r *edge.Request) {
	kept = r.URL().Query().Get("secret")
	table[kept] = kept
	os.Setenv("SECRET", kept)
}

// hide leaves a secret in variables, in the environment, in grown memory, with
// goroutines and timers, and in an unfinished line, and closes what there is.
func hide(w *edge.ResponseWriter, r *edge.Request) {
	remember(r)
	pool.Put(&kept)
	for range 64 {
		grown = append(grown, bytes.Repeat([]byte(kept), 1<<19/len(kept)))
	}
	lock.Lock()
	secret := strings.Clone(kept)
	go func() { lock.Lock(); table["late"] = secret }()
	timers = append(timers, time.AfterFunc(time.Nanosecond, func() { table["timer"] = secret }))
	fmt.Fprint(os.Stdout, "unfinished")
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		f.Close()
	}
	runtime.Gosched()
	fmt.Fprint(w, "hidden")
}

// seek answers with what it finds.
func seek(w *edge.ResponseWriter, _ *edge.Request) {
	var found []string
	note := func(what string, there bool) {
		if there {
			found = append(found, what)
		}
	}
	runtime.Gosched()
	note("a variable", kept != "")
	note("a count", served != 1)
	note("a map", len(table) > 0)
	note("an environment", os.Getenv("SECRET") != "")
	note("a pool", pool.Get() != nil)
	note("memory", len(grown) > 0)
	note("a timer", len(timers) > 0)
	note("a lock", !lock.TryLock())
	note("goroutines", runtime.NumGoroutine() != 2)
	_, err := os.Stdout.WriteString("whole\n")
	note("a closed file", err != nil)
	fmt.Fprint(w, strings.Join(found, ", "))
}

func spin() {
	for {
		served++
	}
}

func recurse(n int) int { return recurse(n+1) + 1 }

func eat() {
	for {
		grown = append(grown, make([]byte, 1<<20))
	}
}

// random answers with random numbers of three kinds, and with the time since
// initialization.
func random(w *edge.ResponseWriter, _ *edge.Request) {
	var b [8]byte
	_, _ = rand.Read(b[:])
	fmt.Fprintln(w, mathrand.Uint64(), maphash.String(seed, "a"), hex.EncodeToString(b[:]), time.Since(begun).Nanoseconds())
}
