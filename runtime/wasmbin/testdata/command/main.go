// Command is a guest that prints what much of the standard library computes.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"regexp"
	"sort"
	"strings"
	"sync"
	"text/template"
)

func main() {
	fmt.Println("squares", squares(20_000))
	fmt.Printf("sha256 %x\n", sha256.Sum256(bytes.Repeat([]byte("edge"), 100_000)))
	fmt.Println("factorial", new(big.Int).MulRange(1, 200))
	fmt.Println("sin", math.Sin(1e9), math.Sqrt(2), math.Pow(3, 0.1))
	fmt.Println("regexp", regexp.MustCompile(`(\w+)@(\w+)\.com`).FindAllString("a@b.com, c@d.org, e@f.com", -1))
	fmt.Println("gzip", roundTrip(strings.Repeat("all work and no play ", 20_000)))
	var v any
	if err := json.Unmarshal([]byte(strings.Repeat("[", 900)+strings.Repeat("]", 900)), &v); err != nil {
		fmt.Println(err)
	}
	text, _ := json.Marshal(v)
	fmt.Println("json", len(text))
	template.Must(template.New("").Parse("template {{range .}}{{.}},{{end}}\n")).Execute(output{}, []int{1, 2, 3})
	defer func() { fmt.Println("recovered", recover()) }()
	var empty []int
	fmt.Println(empty[len(text)])
}

type output struct{}

func (output) Write(b []byte) (int, error) { return fmt.Print(string(b)) }

// squares adds numbers up with goroutines, a channel and a lock.
func squares(n int) int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	numbers, all := make(chan int), []int{}
	for range 8 {
		wg.Go(func() {
			for i := range numbers {
				mu.Lock()
				all = append(all, i*i%1001)
				mu.Unlock()
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
	sort.Ints(all)
	sum := 0
	for i, v := range all {
		sum += i * v
	}
	return sum
}

func roundTrip(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	size := b.Len()
	r, err := gzip.NewReader(&b)
	if err != nil {
		return err.Error()
	}
	out, err := io.ReadAll(r)
	return fmt.Sprint(size, len(out), string(out) == s, err)
}
