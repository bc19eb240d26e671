package objects

import "time"

// SetClock makes a host that is opened with cfg read its clocks from fn.
func SetClock(cfg *Config, fn func() (mono time.Duration, wall time.Time)) {
	cfg.clock = func() stamp {
		mono, wall := fn()
		return stamp{mono, wall}
	}
}
