package objects

import "github.com/edgehost/edgehost/guests/abi"

const errUnbuilt = abi.Unsupported
