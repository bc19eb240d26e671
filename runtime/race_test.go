//go:build race

package runtime_test

// Everything takes about ten times as long.
const (
	raceDetector = true
	raceFactor   = 10
)
