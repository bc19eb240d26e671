package conformance

import (
	"slices"

	"github.com/edgehost/edgehost/guests/abi"
)

// The interpreter is a guest that makes the host calls that the request's body
// tells it to. The body begins with a u32, the size of the program; what follows
// the program is left for the calls to read. All numbers are little-endian.
//
//	program: operations u32, offset of the first one u32, data, operations
//	operation: function u32, zero u32, nine arguments
//	argument: mode u32, value u64
//
// The program is loaded at programAt, so addresses in its data are known
// beforehand. The result of operation i is stored at resultsAt + 4i.
const (
	interpreterPages = 8
	returnAt         = 0x20 // what edgehost_handle will return
	sizeAt           = 0x28 // the size of the program
	resultsAt        = 0x400
	programAt        = 0x1000
	maxSteps         = (programAt - resultsAt) / 4
	drainAt          = (interpreterPages - 1) << 16 // one page that drain reads into

	operationSize = operationHead + maxArguments*argumentSize
	operationHead = 8
	argumentSize  = 12
	maxArguments  = 9
)

// Modes of an argument.
const (
	constant = 0 // value itself
	resultOf = 1 // the result of the operation of that number
	cellAt64 = 2 // the u64 at that address, read when the call is made
)

// Operations beside those of abi.Functions, which are numbered by their place
// in it.
const (
	ownEnd      = 100 + iota // stop here, edgehost_handle returns the argument
	ownTrap                  // execute unreachable
	ownStore                 // store a u32: address, value
	ownReadAll               // read until the buffer is full or the end: handle, pointer, capacity
	ownWriteAll              // write all of it: handle, pointer, length
	ownDrain                 // read until the end and forget: handle
)

// interpreter assembles the guest.
func interpreter() []byte {
	m := &module{}
	functions := abi.Functions()
	host := make(map[string]uint32, len(functions))
	for _, f := range functions {
		host[f.Name] = m.host(f.Name)
	}
	argument := m.argument()
	readAll, writeAll := m.transfer(host["read"]), m.transfer(host["write"])
	drain := m.drain(host["read"])

	const operation = 0 // the parameter of step
	var dispatch [][]byte
	for i, f := range functions {
		dispatch = append(dispatch, isFunction(operation, i), when(invoke(host[f.Name], argument, f.Params), do(opReturn)))
	}
	one, two, three := words(1), words(2), words(3)
	end := m.function(signature{one, abi.I32}, nil,
		i32c(returnAt), get(0), access(opI32Store, 0),
		i32c(programAt), i32c(0), access(opI32Store, 0), // no operations are left
		i32c(0))
	store := m.function(signature{two, abi.I32}, nil, get(0), get(1), access(opI32Store, 0), i32c(0))
	trap := m.function(signature{nil, abi.I32}, nil, do(opUnreachable))
	for _, own := range []struct {
		number, function uint32
		params           []abi.Type
	}{
		{ownEnd, end, one},
		{ownTrap, trap, nil},
		{ownStore, store, two},
		{ownReadAll, readAll, three},
		{ownWriteAll, writeAll, three},
		{ownDrain, drain, one},
	} {
		dispatch = append(dispatch, isFunction(operation, int(own.number)),
			when(invoke(own.function, argument, own.params), do(opReturn)))
	}
	step := m.function(signature{one, abi.I32}, nil, append(dispatch, do(opUnreachable))...)

	handle := m.function(handleType, words(1), interpret(readAll, step)...)
	m.memory(interpreterPages)
	m.export(abi.ExportHandle, handle)
	return m.encode()
}

// interpret is the body of edgehost_handle: load the program, then step through it.
func interpret(readAll, step uint32) [][]byte {
	const i = 0
	body := i32c(abi.HandleRequestBody)
	address := slices.Concat(
		i32c(programAt+4), access(opI32Load, 0), i32c(programAt), do(opI32Add),
		get(i), i32c(operationSize), do(opI32Mul, opI32Add))
	return [][]byte{
		i32c(returnAt), i32c(abi.HandleDone), access(opI32Store, 0), // an earlier request may have left another
		run(readAll, body, i32c(sizeAt), i32c(4)),
		run(readAll, body, i32c(programAt), i32c(sizeAt), access(opI32Load, 0)),
		block(loop(
			get(i), i32c(programAt), access(opI32Load, 0), do(opI32GeU), brIf(1),
			i32c(resultsAt), get(i), i32c(4), do(opI32Mul, opI32Add),
			call(step, address), access(opI32Store, 0),
			get(i), i32c(1), do(opI32Add), set(i),
			again())),
		i32c(returnAt), access(opI32Load, 0),
	}
}

// words are n parameters or locals of type i32.
func words(n int) []abi.Type { return slices.Repeat([]abi.Type{abi.I32}, n) }

// isFunction leaves whether the operation has that number.
func isFunction(operation uint32, number int) []byte {
	return slices.Concat(get(operation), access(opI32Load, 0), i32c(int32(number)), do(opI32Eq))
}

// invoke calls a function with the arguments of the operation in local 0.
func invoke(function, argument uint32, params []abi.Type) []byte {
	var arguments []byte
	for i, p := range params {
		arguments = append(arguments, call(argument, get(0), i32c(int32(i)))...)
		if p == abi.I32 {
			arguments = append(arguments, opI32Wrap)
		}
	}
	return call(function, arguments)
}

// argument defines the function (operation, index) -> i64.
func (m *module) argument() uint32 {
	const operation, index, at = 0, 1, 2
	value := slices.Concat(get(at), access(opI32Load, 4))
	return m.function(signature{words(2), abi.I64}, words(1),
		get(operation), i32c(operationHead), do(opI32Add), get(index), i32c(argumentSize), do(opI32Mul, opI32Add), set(at),
		get(at), access(opI32Load, 0), i32c(resultOf), do(opI32Eq),
		when(value, i32c(4), do(opI32Mul), i32c(resultsAt), do(opI32Add), access(opI32Load, 0), do(opI64ExtendS, opReturn)),
		get(at), access(opI32Load, 0), i32c(cellAt64), do(opI32Eq),
		when(value, access(opI64Load, 0), do(opReturn)),
		get(at), access(opI64Load, 4))
}

// transfer defines the function (handle, pointer, length) -> i32 that repeats
// read or write until all is done, an end, or a failure, and answers the number
// of bytes or the code.
func (m *module) transfer(function uint32) uint32 {
	const handle, pointer, length, done, result = 0, 1, 2, 3, 4
	return m.function(signature{words(3), abi.I32}, words(2),
		block(loop(
			get(done), get(length), do(opI32GeU), brIf(1),
			call(function, get(handle),
				get(pointer), get(done), do(opI32Add),
				get(length), get(done), do(opI32Sub),
				i32c(0)),
			tee(result), i32c(0), do(opI32LeS), brIf(1),
			get(done), get(result), do(opI32Add), set(done),
			again())),
		get(result), i32c(0), do(opI32LtS), when(get(result), do(opReturn)),
		get(done))
}

// drain defines the function (handle) -> i32 that reads to the end and answers
// the number of bytes or the code.
func (m *module) drain(read uint32) uint32 {
	const handle, done, result = 0, 1, 2
	return m.function(signature{words(1), abi.I32}, words(2),
		block(loop(
			call(read, get(handle), i32c(drainAt), i32c(1<<16), i32c(0)),
			tee(result), i32c(0), do(opI32LeS), brIf(1),
			get(done), get(result), do(opI32Add), set(done),
			again())),
		get(result), i32c(0), do(opI32LtS), when(get(result), do(opReturn)),
		get(done))
}
