package abi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/edgehost/edgehost/guests/abi"
)

func TestCodeOf(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want abi.Code
	}{
		{"no error", nil, 0},
		{"a code", abi.Deferred, abi.Deferred},
		{"a wrapped code", fmt.Errorf("call: %w", abi.LeaseLost), abi.LeaseLost},
		{"a code beside another error", errors.Join(io.EOF, abi.Fenced), abi.Fenced},
		{"a code before the context's error", fmt.Errorf("%w: %w", abi.Unavailable, context.Canceled), abi.Unavailable},
		{"a deadline", fmt.Errorf("wait: %w", context.DeadlineExceeded), abi.DeadlineExceeded},
		{"a cancellation", fmt.Errorf("wait: %w", context.Canceled), abi.Canceled},
		{"anything else", io.ErrUnexpectedEOF, abi.Internal},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := abi.CodeOf(c.err); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestNumbersOutsideOfTheTableAreInternal(t *testing.T) {
	for _, code := range []abi.Code{1, math.MaxInt32, abi.AnswerUnavailable - 1, math.MinInt32} {
		if code.String() != "internal" || code.Valid() {
			t.Errorf("%d is %q, valid %v", int32(code), code, code.Valid())
		}
	}
	if ok := abi.Code(0); ok.String() != "ok" || ok.Valid() {
		t.Errorf("0 is %q, valid %v", ok, ok.Valid())
	}
	for code := abi.AnswerUnavailable; code < 0; code++ {
		if !code.Valid() || code.Error() != code.String() {
			t.Errorf("%v: valid %v, error %q", code, code.Valid(), code.Error())
		}
	}
}
