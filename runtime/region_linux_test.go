package runtime

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// Every way to keep memory gives it back as it was, whatever was written.
func TestRegionGoesBackToItsImage(t *testing.T) {
	t.Parallel()
	written := openPagemap()
	if written == nil {
		t.Fatal("the system does not tell what was written")
	}
	defer written.close()
	const pages, limit = 40, 100
	content := make([]byte, pages<<16)
	for i := range content {
		if i>>12%3 != 0 { // some pages are zero
			content[i] = byte(i>>12 + 1)
		}
	}
	for name, kind := range map[string]struct {
		image *image
		heap  bool
	}{
		"what was written is known": {newImage(content, written), false},
		"it is not known":           {newImage(content, nil), false},
		"without files":             {&image{content: bytes.Clone(content), fd: -1}, false},
		"without address space":     {&image{content: bytes.Clone(content), fd: -1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer kind.image.close()
			r := &region{image: kind.image}
			defer r.close()
			if kind.heap {
				r.limit = limit << 16
				r.begin()
			} else {
				r.Allocate(0, limit<<16)
			}
			random := rand.New(rand.NewPCG(1, 2))
			for round := range 3 * heatRounds {
				scribble(r, random, pages, limit)
				r.restore()
				if r.restored && len(r.Reallocate((pages+1)<<16)) != len(content) {
					t.Fatalf("round %d: it is not made smaller", round)
				}
				memory := r.extend(limit << 16)
				if !bytes.Equal(memory[:len(content)], content) || len(bytes.Trim(memory[len(content):], "\x00")) > 0 {
					t.Fatalf("round %d: something is left", round)
				}
				r.top = len(content)
			}
		})
	}
}

// scribble writes to some pages that it always writes to, to others, and to what
// it grows by.
func scribble(r *region, random *rand.Rand, pages, limit int) {
	memory := r.extend((pages + random.IntN(limit-pages)) << 16)
	page := os.Getpagesize()
	for n := range 60 + random.IntN(200) { // few, or too many to give back one by one
		at := random.IntN(len(memory))
		if n < 50 {
			at = n * 2 * page
		}
		memory[at]++
	}
}

func TestColdPagesThatAdjoinAreOnePiece(t *testing.T) {
	t.Parallel()
	got := pieces(nil, []int{0, 1, 2, 4, 5, 6, 9}, map[int]bool{5: true})
	if want := []piece{{0, 3}, {4, 5}, {6, 7}, {9, 10}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWhatIsWrittenOftenIsHot(t *testing.T) {
	t.Parallel()
	var h heat
	many := make([]int, 0, 2*heatMost)
	for n := range 2 * heatMost {
		many = append(many, 100+n)
	}
	for round := range heatRounds {
		list := []int{1, 10 + round}
		if round%2 == 0 {
			list = append(list, many...)
		}
		if hot := h.hot(list); hot != nil {
			t.Errorf("round %d: %d pages are hot", round, len(hot))
		}
	}
	if hot := h.hot(nil); len(hot) != heatMost || !hot[1] || hot[10] {
		t.Errorf("hot: %v", hot)
	}
}

// BenchmarkRestore restores 64 MiB of which every second page of some was written.
func BenchmarkRestore(b *testing.B) {
	written := openPagemap()
	defer written.close()
	for _, pages := range []int{20, 60, 600, 8000} {
		b.Run(strconv.Itoa(pages), func(b *testing.B) {
			i := newImage(make([]byte, 64<<20), written)
			defer i.close()
			r := &region{image: i}
			defer r.close()
			r.Allocate(0, 64<<20)
			for b.Loop() {
				b.StopTimer()
				for n := range pages {
					r.reserved[n<<13] = 1
				}
				b.StartTimer()
				r.restore()
			}
		})
	}
}
