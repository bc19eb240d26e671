package conformance

import (
	"encoding/binary"
	"net/http"

	"github.com/edgehost/edgehost/guests/abi"
)

// Addresses in the small guests' only page.
const (
	headAt = 16
	bodyAt = 1024
	cellAt = 4096 // scratch, and eight-aligned
)

const wasi = "wasi_snapshot_preview1"

var handleType = signature{nil, abi.I32}

// HelloBody is what Hello answers.
const HelloBody = "hello, world\n"

// Hello returns a guest that answers every request with 200, a content type and
// HelloBody, in two host calls.
func Hello() []byte {
	m := &module{}
	answer := m.answer("Content-Type", "text/plain; charset=utf-8", HelloBody)
	return m.handled(answer, i32c(abi.HandleDone))
}

// Returns returns a guest that does nothing but return result from
// edgehost_handle: zero for a guest that never answers, a negative number for
// one that failed, anything above abi.HandleRetire for nonsense.
func Returns(result int32) []byte { return (&module{}).handled(i32c(result)) }

// Silent returns a guest that never answers.
func Silent() []byte { return Returns(abi.HandleDone) }

// Negative returns a guest that says it failed.
func Negative() []byte { return Returns(-5) }

// Trap returns a guest that executes unreachable.
func Trap() []byte { return (&module{}).handled(do(opUnreachable)) }

// TrapAfterHead returns a guest that begins an answer and then traps: before
// anything was sent if flushed is false, else after its head and first bytes.
func TrapAfterHead(flushed bool) []byte {
	m := &module{}
	answer := m.answer("X-Guest", "trap", "half of an ans")
	flush := m.host("flush")
	if flushed {
		answer = append(answer, run(flush, i32c(abi.HandleResponseBody))...)
	}
	return m.handled(answer, do(opUnreachable))
}

// Exit returns a guest that calls proc_exit of WASI with that status.
func Exit(status int32) []byte {
	m := &module{}
	exit := m.imported(wasi, "proc_exit", signature{words(1), 0})
	return m.handled(call(exit, i32c(status)), i32c(abi.HandleDone))
}

// Loop returns a guest that loops for ever without calling anything.
func Loop() []byte {
	return (&module{}).handled(loop(again()), i32c(abi.HandleDone))
}

// BadHeader returns a guest that sends one header, ignores the result, and
// writes a body as if all were well.
func BadHeader(name, value string) []byte {
	m := &module{}
	answer := m.answer(name, value, "sent with a bad header")
	return m.handled(answer, i32c(abi.HandleDone))
}

// DoubleAnswer returns a guest that gives two complete answers.
func DoubleAnswer() []byte {
	m := &module{}
	answer := m.answer("X-Guest", "double", "an answer")
	finish := m.host("finish")
	end := run(finish, i32c(abi.HandleResponseBody), i32c(0), i32c(0))
	return m.handled(answer, end, answer, end, i32c(abi.HandleDone))
}

// Retire returns a guest that answers as Hello does and asks to be discarded.
func Retire() []byte {
	m := &module{}
	answer := m.answer("Content-Type", "text/plain; charset=utf-8", HelloBody)
	return m.handled(answer, i32c(abi.HandleRetire))
}

// Counter returns a guest that answers with one byte, '1' on the first request
// of an instance and one more on each that follows.
func Counter() []byte {
	m := &module{}
	head, write := m.host("response_head"), m.host("write")
	m.bytes(bodyAt, []byte{'0'})
	return m.handled(
		i32c(bodyAt), i32c(bodyAt), access(opI32Load, 0), i32c(1), do(opI32Add), access(opI32Store, 0),
		run(head, i32c(http.StatusOK), i32c(0), i32c(0), i32c(0)),
		run(write, i32c(abi.HandleResponseBody), i32c(bodyAt), i32c(1), i32c(0)),
		i32c(abi.HandleDone))
}

// Recursion returns a guest that calls itself without end.
func Recursion() []byte {
	m := &module{}
	self := m.next()
	m.function(signature{}, nil, call(self))
	return m.handled(call(self), i32c(abi.HandleDone))
}

// CallTree returns a guest that makes 2^depth calls and has no loop.
func CallTree(depth int32) []byte {
	m := &module{}
	self := m.next()
	below := call(self, get(0), i32c(1), do(opI32Sub))
	m.function(signature{words(1), 0}, nil, get(0), when(below, below))
	return m.handled(call(self, i32c(depth)), i32c(abi.HandleDone))
}

// MemoryFill returns a guest that grows its memory to that many pages and fills
// all of it again and again, each time in one instruction.
func MemoryFill(pages uint32) []byte {
	fill := append(do(opBulk, bulkFill), 0)
	all := [][]byte{do(opMemorySize, 0), i32c(1 << 16), do(opI32Mul)}
	return (&module{}).handled(
		i32c(int32(pages-1)), do(opMemoryGrow, 0, opDrop),
		loop(i32c(0), i32c(1), all[0], all[1], all[2], fill, again()),
		i32c(abi.HandleDone))
}

// GrowToLimit returns a guest that grows its memory page by page until that is
// refused, and answers with the number of pages it has, a little-endian u32.
func GrowToLimit() []byte {
	m := &module{}
	head, write := m.host("response_head"), m.host("write")
	return m.handled(
		loop(i32c(1), do(opMemoryGrow, 0), i32c(-1), do(opI32Ne), brIf(0)),
		i32c(cellAt), do(opMemorySize, 0), access(opI32Store, 0),
		run(head, i32c(http.StatusOK), i32c(0), i32c(0), i32c(0)),
		run(write, i32c(abi.HandleResponseBody), i32c(cellAt), i32c(4), i32c(0)),
		i32c(abi.HandleDone))
}

// SleepPoll returns a guest that asks poll_oneoff of WASI to sleep for an hour.
func SleepPoll() []byte {
	const clockID, timeoutAt, hour = 16, 24, 3600e9
	subscription := make([]byte, 48) // of the clock kind, which is zero
	binary.LittleEndian.PutUint32(subscription[clockID:], 1)
	binary.LittleEndian.PutUint64(subscription[timeoutAt:], hour)
	m := &module{}
	poll := m.imported(wasi, "poll_oneoff", signature{words(4), abi.I32})
	m.bytes(bodyAt, subscription)
	return m.handled(
		run(poll, i32c(bodyAt), i32c(cellAt), i32c(1), i32c(cellAt+64)),
		i32c(abi.HandleDone))
}

// Wait returns a guest that asks the ABI's wait to sleep for ever.
func Wait() []byte {
	m := &module{}
	wait := m.host("wait")
	return m.handled(run(wait, i32c(0), i32c(0), i64c(-1)), i32c(abi.HandleDone))
}

// InitTrap returns a guest whose _initialize traps.
func InitTrap() []byte {
	m := &module{}
	m.export(abi.ExportInit, m.function(signature{}, nil, do(opUnreachable)))
	return m.handled(i32c(abi.HandleDone))
}

// answer imports response_head and write and gives the code of a whole answer;
// it must come before any function is defined.
func (m *module) answer(header, value, body string) []byte {
	head, write := m.host("response_head"), m.host("write")
	record := abi.AppendPair(nil, abi.FieldHeader, header, value)
	m.bytes(headAt, record)
	m.bytes(bodyAt, []byte(body))
	return append(
		run(head, i32c(http.StatusOK), i32c(headAt), i32c(int32(len(record))), i32c(0)),
		run(write, i32c(abi.HandleResponseBody), i32c(bodyAt), i32c(int32(len(body))), i32c(0))...)
}
