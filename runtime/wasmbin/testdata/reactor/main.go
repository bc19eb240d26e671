// Reactor is a guest whose exports compute. Each returns a checksum.
package main

import (
	"encoding/json"
	"slices"
	"strconv"
)

func main() {}

//go:wasmexport arithmetic
func arithmetic(n int32) int32 {
	x := uint32(1)
	for i := range uint32(n) {
		x = (x*1664525 + i) ^ x>>3
	}
	return int32(x)
}

//go:wasmexport sieve
func sieve(n int32) int32 {
	composite := make([]bool, n)
	count := int32(0)
	for i := 2; i < len(composite); i++ {
		if composite[i] {
			continue
		}
		count++
		for j := i + i; j < len(composite); j += i {
			composite[j] = true
		}
	}
	return count
}

//go:wasmexport maps
func maps(n int32) int32 {
	numbers := map[int32]int32{}
	for i := range n {
		numbers[i*7%1000] += i
	}
	words := map[string]int32{}
	for i := range n / 10 {
		words[strconv.Itoa(int(i)%500)]++
	}
	sum := int32(len(words))
	for k, v := range numbers {
		sum += k ^ v
	}
	return sum
}

type item struct {
	ID    int               `json:"id"`
	Name  string            `json:"name"`
	Tags  []string          `json:"tags"`
	Attrs map[string]string `json:"attrs"`
	Price float64           `json:"price"`
}

const order = `[
	{"id": 1, "name": "first", "tags": ["a", "b", "c"], "attrs": {"x": "1", "y": "2"}, "price": 12.5},
	{"id": 2, "name": "second", "tags": [], "attrs": {}, "price": 3.25}
]`

//go:wasmexport handler
func handler(n int32) int32 {
	total := 0
	for i := range int(n) {
		var items []item
		if err := json.Unmarshal([]byte(order), &items); err != nil {
			return -1
		}
		slices.SortFunc(items, func(a, b item) int { return int(a.Price - b.Price) })
		items[0].ID = i
		out, err := json.Marshal(items)
		if err != nil {
			return -1
		}
		total += len(out)
	}
	return int32(total)
}

//go:wasmexport fib
func fib(n int32) int32 {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}
