package host

import goruntime "runtime"

// settleRounds is how often goroutines that are about to end get the processor
// before they count as left over.
const settleRounds = 16

// Goroutines returns how many goroutines the guest has.
func Goroutines() int { return goruntime.NumGoroutine() }

// LeftOver reports whether the guest has more goroutines than before, once those
// that are about to end have had their chance.
func LeftOver(before int) bool {
	for range settleRounds {
		if Goroutines() <= before {
			return false
		}
		goruntime.Gosched()
	}
	return true
}
