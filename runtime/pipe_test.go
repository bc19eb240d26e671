package runtime

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/edgehost/edgehost/guests/abi"
)

// A guest writes in steps of any size, a host reads them, and the other way
// round: the bytes and the end arrive as they were written.
func TestPipeCarriesEveryByte(t *testing.T) {
	source := make([]byte, 5*pipeSize+123)
	for i := range source {
		source[i] = byte(rand.Uint32())
	}
	t.Run("from the guest", func(t *testing.T) {
		wake := make(chan struct{}, 1)
		p := newPipe(func() { signal(wake) })
		got := make(chan []byte, 1)
		go func() { b, _ := io.ReadAll(p); got <- b }()
		for rest := source; len(rest) > 0; {
			n, err := p.tryWrite(rest[:min(len(rest), 1+rand.IntN(2*pipeSize))])
			if err != nil {
				t.Fatal(err)
			}
			if rest = rest[n:]; n == 0 {
				<-wake
			}
		}
		p.finish(io.EOF)
		if !bytes.Equal(<-got, source) {
			t.Error("the bytes differ")
		}
	})
	t.Run("to the guest", func(t *testing.T) {
		wake := make(chan struct{}, 1)
		p := newPipe(func() { signal(wake) })
		go func() { _, _ = io.Copy(p, bytes.NewReader(source)); p.finish(io.EOF) }()
		var got []byte
		buffer := make([]byte, 2*pipeSize)
		for {
			n, err := p.tryRead(buffer[:1+rand.IntN(len(buffer))])
			got = append(got, buffer[:n]...)
			if err != nil {
				break
			}
			if n == 0 {
				<-wake
			}
		}
		if !bytes.Equal(got, source) {
			t.Error("the bytes differ")
		}
	})
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func TestPipeEnds(t *testing.T) {
	p := newPipe(func() {})
	if _, err := p.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	p.finish(abi.DependencyFailed)
	p.finish(io.EOF) // too late
	if n, err := p.tryWrite([]byte("more")); n != 0 || err == nil {
		t.Errorf("wrote %d bytes after the end, %v", n, err)
	}
	b := make([]byte, 10)
	if n, err := p.tryRead(b); n != 4 || err != nil {
		t.Errorf("read %d, %v before the end", n, err)
	}
	if _, err := p.Read(b); !errors.Is(err, abi.DependencyFailed) {
		t.Errorf("got %v at the end", err)
	}
	p.close(abi.Canceled)
	if _, err := p.tryRead(b); !errors.Is(err, abi.Canceled) {
		t.Errorf("got %v after close", err)
	}
}
