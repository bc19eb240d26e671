package record

import (
	"encoding/json"
	"fmt"
)

// envelope is a command on its way to another host.
type envelope struct {
	Kind    string          `json:"kind"`
	Command json.RawMessage `json:"command"`
}

// EncodeCommand returns a command as it is sent to an owner on another host.
func EncodeCommand(cmd Command) ([]byte, error) {
	kind, ok := kindOf(cmd)
	if !ok {
		return nil, fmt.Errorf("record: %T is not sent to other hosts", cmd)
	}
	body, err := json.Marshal(cmd)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return json.Marshal(envelope{kind, body})
}

func kindOf(cmd Command) (kind string, ok bool) {
	switch cmd.(type) {
	case Report:
		return "report", true
	case Totals:
		return "totals", true
	case ClaimProbe:
		return "claim_probe", true
	case Settle:
		return "settle", true
	case Withdraw:
		return "withdraw", true
	case Override:
		return "override", true
	case Attend:
		return "attend", true
	case Acquire:
		return "acquire", true
	case Renew:
		return "renew", true
	case Release:
		return "release", true
	case Abandon:
		return "abandon", true
	}
	return "", false
}

// DecodeCommand parses what EncodeCommand returned.
func DecodeCommand(data []byte) (Command, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	switch e.Kind {
	case "report":
		return parse[Report](e.Command)
	case "totals":
		return parse[Totals](e.Command)
	case "claim_probe":
		return parse[ClaimProbe](e.Command)
	case "settle":
		return parse[Settle](e.Command)
	case "withdraw":
		return parse[Withdraw](e.Command)
	case "override":
		return parse[Override](e.Command)
	case "attend":
		return parse[Attend](e.Command)
	case "acquire":
		return parse[Acquire](e.Command)
	case "renew":
		return parse[Renew](e.Command)
	case "release":
		return parse[Release](e.Command)
	case "abandon":
		return parse[Abandon](e.Command)
	}
	return nil, fmt.Errorf("record: unknown command %q", e.Kind)
}

func parse[C Command](data []byte) (Command, error) {
	var c C
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return c, nil
}
