package abi_test

import (
	"fmt"

	"github.com/edgehost/edgehost/guests/abi"
)

// The head of a response, as a guest gives it to response_head.
func ExampleAppendPair() {
	record := abi.AppendPair(nil, abi.FieldHeader, "Allow", "GET")
	fmt.Printf("% x\n", record)
	// Output: 07 00 0a 00 00 00 05 00 41 6c 6c 6f 77 47 45 54
}

func ExampleNext() {
	record := abi.AppendText(nil, abi.FieldMethod, "GET")
	record = abi.AppendNumber(record, abi.FieldContentLength, 12)
	for len(record) > 0 {
		field, rest, err := abi.Next(record)
		if err != nil {
			fmt.Println(err)
			return
		}
		record = rest
		switch field.Tag {
		case abi.FieldMethod:
			fmt.Println("method", string(field.Value))
		case abi.FieldContentLength:
			n, err := field.Number()
			fmt.Println("length", n, err)
		default: // of a later version: ignored
		}
	}
	// Output:
	// method GET
	// length 12 <nil>
}
