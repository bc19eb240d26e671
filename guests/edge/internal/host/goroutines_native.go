//go:build !wasip1

package host

import (
	"bufio"
	"bytes"
	"context"
	goruntime "runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// The process of a test has goroutines that are not the guest's. Those of the
// guest inherit a label from the one that calls it.
const (
	guestLabel = "edgehost"
	guestValue = "guest"

	settleTime = 200 * time.Millisecond // for goroutines that are about to end
)

// labeled runs do as the guest.
func labeled(do func()) {
	pprof.Do(context.Background(), pprof.Labels(guestLabel, guestValue), func(context.Context) { do() })
}

// Unlabeled runs do, which the guest's goroutine calls, as a part of the host.
func Unlabeled(do func()) {
	guest := pprof.WithLabels(context.Background(), pprof.Labels(guestLabel, guestValue))
	pprof.SetGoroutineLabels(context.Background())
	defer pprof.SetGoroutineLabels(guest)
	do()
}

// Goroutines returns how many goroutines the guest has.
func Goroutines() (n int) {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return 0
	}
	label := strconv.Quote(guestLabel) + ":" + strconv.Quote(guestValue)
	group := 0 // the size of the group of goroutines whose lines are being read
	for lines := bufio.NewScanner(&profile); lines.Scan(); {
		if count, _, ok := strings.Cut(lines.Text(), " @"); ok {
			group, _ = strconv.Atoi(count)
		} else if strings.HasPrefix(lines.Text(), "# labels:") && strings.Contains(lines.Text(), label) {
			n += group
		}
	}
	return n
}

// LeftOver reports whether the guest has more goroutines than before, once those
// that are about to end have had their chance.
func LeftOver(before int) bool {
	for start := time.Now(); time.Since(start) < settleTime; goruntime.Gosched() {
		if Goroutines() <= before {
			return false
		}
	}
	return true
}
