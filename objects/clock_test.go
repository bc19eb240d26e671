package objects

import (
	"testing"
	"time"
)

func TestElapsedTimeIsTheLargerOfBothClocks(t *testing.T) {
	start := clockSince(time.Now())()
	tests := map[string]struct{ mono, wall, want time.Duration }{
		"the clocks agree":               {time.Second, time.Second, time.Second},
		"the machine was suspended":      {time.Second, time.Hour, time.Hour},
		"the wall clock was set forward": {time.Second, time.Hour, time.Hour},
		"the wall clock was set back":    {time.Second, -time.Hour, time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			later := stamp{mono: start.mono + tt.mono, wall: start.wall.Add(tt.wall)}
			if got := start.until(later); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
