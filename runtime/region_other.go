//go:build !unix || !(amd64 || arm64)

package runtime

import "errors"

func reserve(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func provide([]byte) error { return errors.ErrUnsupported }

func release([]byte) {}
