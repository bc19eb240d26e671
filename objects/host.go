package objects

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/kvbucket"
)

// A Config says what a host of objects stands on.
type Config struct {
	// Bucket holds the records. All hosts of a fleet share one.
	Bucket kvbucket.Bucket
	// Host names this host to operators, in records and in logs. Hosts may share
	// a name: what tells them apart is a random incarnation that Open adds. Empty
	// means "host".
	Host string
	// Logger receives what no caller is told. Nil means slog.Default.
	Logger *slog.Logger
	// Metrics receives this host's collectors until Close. Nil means none.
	Metrics prometheus.Registerer
}

// A Host is this process's part in the objects of the fleet. Its methods may be
// called from any number of goroutines.
type Host struct{}

// Open starts a host. It waits for nothing: a host opens and admits calls while
// the store is away. The error unwraps to abi.Invalid if cfg cannot be used.
func Open(ctx context.Context, cfg Config) (*Host, error) {
	return nil, errUnbuilt
}

// Close ends every lease that is still held and releases it, gives up the
// ownership of this host's objects, and returns when all goroutines of the host
// have ended. New calls are refused as unavailable. When ctx ends, what has not
// been given up is left to lapse; the goroutines are joined all the same. Closing
// again does nothing.
func (h *Host) Close(ctx context.Context) error { return errUnbuilt }

// Dependency returns the object that guards the dependency id. The same id gives
// the same object; the policy of the last call holds. The error unwraps to
// abi.Invalid.
func (h *Host) Dependency(id ID, p Policy) (*Dependency, error) { return nil, errUnbuilt }

// Object returns the object id for leases and state. It costs nothing until it is
// used and need not be kept. The error unwraps to abi.Invalid.
func (h *Host) Object(id ID) (*Object, error) { return nil, errUnbuilt }
