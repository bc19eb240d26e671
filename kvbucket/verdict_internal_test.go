package kvbucket

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestJudge(t *testing.T) {
	apiErr := func(code int, description string) string {
		return fmt.Sprintf(`{"error":{"code":400,"err_code":%d,"description":%q},"stream":"KV_test","seq":0}`, code, description)
	}
	tests := []struct {
		name     string
		reply    string
		err      error
		want     verdict
		revision Revision
	}{
		{"an acknowledgement applies the write", `{"stream":"KV_test","seq":7}`, nil, applied, 7},
		{"a duplicate has the first sequence", `{"stream":"KV_test","seq":5,"duplicate":true}`, nil, applied, 5},
		{"a compared revision is a conflict", apiErr(10071, "wrong last sequence: 4"), nil, conflicted, 0},
		{"a write in flight is no conflict", apiErr(10164, "wrong last sequence"), nil, refused, 0},
		{"a new leader is not ready", apiErr(10163, "expected last sequence per subject temporarily unavailable"), nil, refused, 0},
		{"an earlier attempt is in process", apiErr(10158, "duplicate message id is in process"), nil, refused, 0},
		{"the cluster has no leader", apiErr(10008, "JetStream system temporarily unavailable"), nil, refused, 0},
		{"the server does not lead", apiErr(10009, "JetStream cluster can not handle request"), nil, refused, 0},
		{"the ingest queue is full", apiErr(10167, "too many requests"), nil, refused, 0},
		{"a full bucket rejects", apiErr(10077, "maximum bytes exceeded"), nil, rejected, 0},
		{"a store that broke may have been copied before", apiErr(10077, "store is closed"), nil, lost, 0},
		{"a message too large is rejected", apiErr(10054, "message size exceeds maximum allowed"), nil, rejected, 0},
		{"resources that ran out reject", apiErr(10023, "insufficient resources"), nil, rejected, 0},
		{"a code that nobody knows rejects", apiErr(19999, "news"), nil, rejected, 0},
		{"an answer that is no acknowledgement leaves doubt", `hello`, nil, lost, 0},
		{"an empty answer leaves doubt", ``, nil, lost, 0},
		{"an acknowledgement without a sequence leaves doubt", `{"stream":"KV_test"}`, nil, lost, 0},
		{"nobody listens", "", nats.ErrNoResponders, refused, 0},
		{"there is no connection", "", fmt.Errorf("%w: not connected", errNotSent), unsent, 0},
		{"the reconnect buffer is off", "", nats.ErrReconnectBufExceeded, unsent, 0},
		{"the context ended before sending", "", fmt.Errorf("%w: %w", errNotSent, context.Canceled), unsent, 0},
		{"the server takes no such size", "", nats.ErrMaxPayload, rejected, 0},
		{"the connection was closed before sending", "", ErrClosed, rejected, 0},
		{"the connection was closed meanwhile", "", nats.ErrConnectionClosed, lost, 0},
		{"the connection was lost meanwhile", "", nats.ErrDisconnected, lost, 0},
		{"the acknowledgement took too long", "", context.DeadlineExceeded, lost, 0},
		{"the caller went away", "", context.Canceled, lost, 0},
		{"an error that nobody knows leaves doubt", "", errors.New("news"), lost, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, revision, err := judge(&nats.Msg{Data: []byte(tt.reply)}, tt.err)
			if got != tt.want || revision != tt.revision {
				t.Errorf("got verdict %d at %d, want %d at %d", got, revision, tt.want, tt.revision)
			}
			if (err == nil) != (tt.want == applied) {
				t.Errorf("got error %v", err)
			}
		})
	}
}

func TestAtLeast(t *testing.T) {
	tests := []struct {
		version string
		want    bool
	}{
		{"2.11.0", true},
		{"2.11.0-RC.1", true},
		{"2.15.3", true},
		{"3.0.0", true},
		{"2.10.29", false},
		{"2.9.99", false},
		{"1.12.0", false},
		{"", false},
		{"dev", false},
	}
	for _, tt := range tests {
		if got := atLeast(tt.version, 2, 11); got != tt.want {
			t.Errorf("atLeast(%q, 2, 11) = %v", tt.version, got)
		}
	}
}
