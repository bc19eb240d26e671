package edge

import (
	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// Env returns a value of the manifest's env, "" if there is none.
func Env(name string) string {
	value, _ := config(abi.ConfigEnv, name)
	return value
}

// Secret returns a secret that the manifest gives to the function. For any other
// name it returns "" and logs an error, since what is sent without the secret
// fails far away from here.
func Secret(name string) string {
	value, err := config(abi.ConfigSecret, name)
	if err != nil {
		Log.Error("edge: secret", "error", err)
	}
	return value
}

func config(kind int32, name string) (string, error) {
	value, n := fill(make([]byte, 0, 128), func(p []byte) int32 { return host.Current().Config(kind, name, p) })
	if n < 0 {
		return "", failure(n, "config "+name)
	}
	return string(value), nil
}
