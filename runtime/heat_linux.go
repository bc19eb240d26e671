package runtime

import (
	"sync"
	"sync/atomic"
)

const (
	heatRounds = 8  // requests that are looked at
	heatOften  = 4  // of them must write a page for it to be hot
	heatMost   = 32 // hot pages: an idle instance keeps them
)

// heat knows which pages of a memory most requests write. It is a hint for what
// is the cheaper way to restore them.
type heat struct {
	known atomic.Pointer[map[int]bool]

	mu     sync.Mutex // guards what follows
	rounds int
	counts map[int]int // by page
}

// hot returns the pages that most requests write, after one that has written
// those of a list. Until it has seen enough requests there are none.
func (h *heat) hot(written []int) map[int]bool {
	if known := h.known.Load(); known != nil {
		return *known
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = make(map[int]int)
	}
	for _, page := range written {
		h.counts[page]++
	}
	if h.rounds++; h.rounds == heatRounds {
		known := hottest(h.counts)
		h.known.Store(&known)
		h.counts = nil
	}
	return nil
}

// hottest returns the pages that were counted most often.
func hottest(counts map[int]int) map[int]bool {
	hot := make(map[int]bool)
	for often := heatRounds; often >= heatOften; often-- {
		for page, n := range counts {
			if n == often && len(hot) < heatMost {
				hot[page] = true
			}
		}
	}
	return hot
}
