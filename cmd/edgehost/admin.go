package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/edgehost/edgehost/cmd/edgehost/internal/manifest"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

const (
	// storeTimeout bounds the reads of the admin pages.
	storeTimeout = 2 * time.Second
	// probeTimeout bounds how long readiness waits for the store. It is less than
	// the second that Kubernetes waits for an answer by default.
	probeTimeout = 500 * time.Millisecond
)

//go:embed admin.html
var adminPage string

// An admin answers operators: metrics, health and what the store holds. It
// shows no secret and changes nothing.
type admin struct {
	bucket   kvbucket.Bucket
	logger   *slog.Logger
	page     *template.Template
	manifest atomic.Pointer[manifest.Manifest] // what is served; nil before the first deployment
}

func newAdmin(bucket kvbucket.Bucket, logger *slog.Logger) *admin {
	return &admin{bucket: bucket, logger: logger, page: template.Must(template.New("admin").Parse(adminPage))}
}

// handler routes the admin address.
func (a *admin) handler(metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{Registry: metrics}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.HandleFunc("GET /objects", a.objects)
	mux.HandleFunc("GET /{$}", a.index)
	return documented(mux)
}

// answer writes a line of text.
func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client went away: nobody is left to tell
}

// ready answers 200 once an app is served, before which the store had to answer. A
// store that is lost later changes only the text: functions with closed breakers
// go on serving, and a load balancer that took every host of the store out would
// stop them all.
func (a *admin) ready(w http.ResponseWriter, r *http.Request) {
	if a.manifest.Load() == nil {
		answer(w, http.StatusServiceUnavailable, "no app is served yet\n")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	if _, err := a.bucket.Get(ctx, "ready"); err != nil && !errors.Is(err, kvbucket.ErrNotFound) {
		a.logger.WarnContext(ctx, "the store does not answer", "error", err)
		answer(w, http.StatusOK, "ready, but the store does not answer\n")
		return
	}
	answer(w, http.StatusOK, "ready\n")
}

// list reads the objects. What can be read is shown, whatever cannot.
func (a *admin) list(r *http.Request) ([]objects.Snapshot, error) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	all, err := objects.List(ctx, a.bucket, "")
	if err != nil {
		a.logger.WarnContext(ctx, "the objects cannot be listed", "error", err)
	}
	return all, err
}

func (a *admin) objects(w http.ResponseWriter, r *http.Request) {
	all, err := a.list(r)
	if err != nil && len(all) == 0 {
		refuse(w, http.StatusServiceUnavailable, "coordination_unavailable", "The objects cannot be read")
		return
	}
	if all == nil {
		all = []objects.Snapshot{}
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(all) // the client went away: nobody is left to tell
}

// adminView is what the page shows.
type adminView struct {
	Build    build
	Manifest *manifest.Manifest
	Objects  []objects.Snapshot
	Failed   bool // the objects could not all be read
}

func (a *admin) index(w http.ResponseWriter, r *http.Request) {
	all, err := a.list(r)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	if err := a.page.Execute(w, adminView{currentBuild(), a.manifest.Load(), all, err != nil}); err != nil {
		a.logger.WarnContext(r.Context(), "the admin page was not sent", "error", err)
	}
}
