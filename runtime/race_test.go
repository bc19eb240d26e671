//go:build race

package runtime_test

// raceDetector says that everything takes ten times as long.
const raceDetector = true
