package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// A directory is the path of an app, or of a file that is checked. An empty one,
// such as that of a shell variable that is not set, is a mistake.
type directory string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *directory) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("the path is empty: \".\" is the current directory")
	}
	*d = directory(text)
	return nil
}

// An address is where a server listens. HOST may be empty for all addresses of
// the machine, PORT 0 for a free one.
type address string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *address) UnmarshalText(text []byte) error {
	_, port, err := net.SplitHostPort(string(text))
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is no HOST:PORT, such as %s", text, defaultListen)
	}
	*a = address(text)
	return nil
}
