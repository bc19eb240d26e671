// Command upstream is a payment service that does what it is told: it works,
// declines, is slow, fails or hangs. It counts the charges that reach it.
//
//	POST /charges          asks for a charge
//	GET  /count            how many have been asked for
//	POST /control/MODE     what happens to the next ones
//
// It listens on the host and port of PAYMENTS_URL, by default 127.0.0.1:9090,
// and stops on an interrupt.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("PAYMENTS_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

// run serves at the host and port of the URL until ctx is done.
func run(ctx context.Context, rawURL string, out io.Writer) error {
	address, err := address(rawURL)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another program listens on %s: set PAYMENTS_URL to another place, such as http://127.0.0.1:9091", address)
	}
	if err != nil {
		return fmt.Errorf("PAYMENTS_URL must lead to this machine: %w", err)
	}
	say(out, "payments listens on http://"+listener.Addr().String())
	server := &http.Server{
		Handler:           new(payments).routes(),
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends charges that hang
		ReadHeaderTimeout: 5 * time.Second,
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- server.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

func address(rawURL string) (string, error) {
	u, err := url.Parse(cmp.Or(rawURL, "http://127.0.0.1:9090"))
	if err != nil || u.Scheme != "http" || u.Hostname() == "" {
		return "", fmt.Errorf("PAYMENTS_URL is %q, which is not http://HOST:PORT", rawURL)
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")), nil
}

// say writes a line to a reader that may have gone.
func say(w io.Writer, line string) { _, _ = io.WriteString(w, line+"\n") }

// payments is the state of the service. Its zero value works.
type payments struct {
	mu    sync.Mutex
	mode  string
	count int
}

func (p *payments) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.charge)
	mux.HandleFunc("GET /count", p.counted)
	mux.HandleFunc("POST /control/{mode}", p.control)
	return mux
}

// slowness is well below the timeout that the example's manifest gives a call.
const slowness = time.Second

func (p *payments) charge(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.count++
	number, mode := p.count, p.mode
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch mode {
	case "fail":
		w.WriteHeader(http.StatusInternalServerError) // whether it charged is not known, so nobody tries again
		return
	case "decline":
		w.WriteHeader(http.StatusPaymentRequired)
		say(w, `{"error":"the card was declined"}`)
		return
	case "hang":
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // not even an empty answer
	case "slow":
		select {
		case <-time.After(slowness):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	w.WriteHeader(http.StatusCreated)
	say(w, fmt.Sprintf(`{"charge":%d}`, number))
}

func (p *payments) counted(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	say(w, strconv.Itoa(p.count))
}

func (p *payments) control(w http.ResponseWriter, r *http.Request) {
	mode := r.PathValue("mode")
	switch mode {
	case "work", "decline", "slow", "fail", "hang":
	default:
		http.Error(w, "the modes are work, decline, slow, fail and hang", http.StatusNotFound)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
}
