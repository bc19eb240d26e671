package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// A State is the record of one state key. It is stored as one line of JSON, so an
// operator can read it, and behind it the value as it is, so a value of the
// permitted size fits into the store whatever its bytes.
type State struct {
	Schema int    `json:"schema"`
	Fence  uint64 `json:"fence"` // the newest that a holder has written; zero for none
	Exists bool   `json:"exists"`
	Commit string `json:"commit"` // the newest write, so that its writer finds it after a lost answer
	After  uint64 `json:"after"`  // the revision that it replaced, so that others know their write did not
	Data   []byte `json:"-"`
}

var errNoHead = errors.New("record: state without its first line")

// Encode returns the record as it is to be stored.
func (s State) Encode() ([]byte, error) {
	s.Schema = Schema
	head, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return append(append(head, '\n'), s.Data...), nil
}

// DecodeState parses a stored record.
func DecodeState(data []byte) (State, error) {
	head, value, ok := bytes.Cut(data, []byte{'\n'})
	if !ok {
		return State{}, errNoHead
	}
	var s State
	if err := decode(head, &s); err != nil {
		return State{}, err
	}
	s.Data = value
	return s, nil
}
