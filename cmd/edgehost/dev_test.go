package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/edgehost/edgehost/guests/conformance"
)

// stopLimit is ten times what stopping takes on an idle machine at most.
const stopLimit = 10 * (devDrain + closeTimeout)

// guest returns the smallest guest, which answers with a line of text as long as
// conformance.HelloBody.
func guest(line string) string {
	return string(bytes.Replace(conformance.Hello(), []byte(conformance.HelloBody), []byte(line), 1))
}

// writeDevApp makes an app whose build copies a file that tests can change.
func writeDevApp(t *testing.T) {
	t.Helper()
	writeApp(t, map[string]string{
		"guest.bin": guest("hello, world\n"),
		"edgehost.toml": `app = "shop"
[function.hello]
module = "hello.wasm"
build = "cp guest.bin hello.wasm"
routes = ["GET /hello"]
[dev]
run = ["echo $GREETING from helper; exec sleep 1000"]
`,
	})
}

func startDev(t *testing.T, environ ...string) (p *process, url string) {
	t.Helper()
	p = startProcess(t, environ, "dev", "shop", "--cache="+filepath.Join(t.TempDir(), "cache"))
	return p, p.await(t, `is served at (http://\S+)$`)
}

func TestDevReloadsWithoutDroppingARequestAndStopsOnCtrlC(t *testing.T) {
	writeDevApp(t)
	p, url := startDev(t, "GREETING=greetings")
	if got := fetch(t, http.DefaultClient, url+"/hello"); got != "hello, world\n" {
		t.Fatalf("the app answers %q", got)
	}
	eventually(t, "the command of [dev] run has the environment and its name", func() bool {
		return strings.Contains(p.log(), "[1000] greetings from helper\n")
	})

	var load sync.WaitGroup
	stop := make(chan struct{})
	load.Go(func() {
		for {
			if got := fetch(t, http.DefaultClient, url+"/hello"); got != "hello, world\n" && got != "hello, again\n" {
				t.Errorf("during reloads the app answered %q", got)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	write(t, "shop/guest.bin", guest("hello, again\n"))
	p.await(t, `^Reloaded in`)
	if got := fetch(t, http.DefaultClient, url+"/hello"); got != "hello, again\n" {
		t.Errorf("after a reload the app answers %q", got)
	}
	write(t, "shop/guest.bin", "no module")
	eventually(t, "a module that cannot be used is reported", func() bool {
		return strings.Contains(p.log(), "The old version goes on.\n")
	})
	close(stop)
	load.Wait()
	if got := fetch(t, http.DefaultClient, url+"/hello"); got != "hello, again\n" {
		t.Errorf("after a failed reload the app answers %q", got)
	}
	write(t, "shop/guest.bin", guest("hello, world\n"))
	p.await(t, `^Reloaded in`)

	if took := p.interrupt(t); took > stopLimit {
		t.Errorf("stopping took %s", took)
	}
	p.requireNothingLeft(t)
	requireClosed(t, url)
}

func TestDevBuildsAModuleAgainThatWasDeleted(t *testing.T) {
	for _, module := range []string{"hello.wasm", "target/wasm/hello.wasm"} {
		t.Run(module, func(t *testing.T) {
			writeDevApp(t)
			text, err := os.ReadFile("shop/edgehost.toml")
			if err != nil {
				t.Fatal(err)
			}
			manifest := strings.ReplaceAll(string(text), "hello.wasm", module)
			write(t, "shop/edgehost.toml", strings.Replace(manifest, "cp guest", "mkdir -p "+filepath.Dir(module)+" && cp guest", 1))
			p, url := startDev(t)
			for range 2 {
				if err := os.Remove("shop/" + module); err != nil {
					t.Fatal(err)
				}
				p.await(t, `^Reloaded in`)
				if _, err := os.Stat("shop/" + module); err != nil {
					t.Error(err)
				}
			}
			if got := fetch(t, http.DefaultClient, url+"/hello"); got != "hello, world\n" {
				t.Errorf("the app answers %q", got)
			}
		})
	}
}

func TestDevWaitsForAChangeWhenTheFirstAttemptFails(t *testing.T) {
	for name, broken := range map[string]struct{ source, want string }{
		"the build":      {"", "building the function hello failed"},
		"the deployment": {"no module", "not a WebAssembly module"},
	} {
		t.Run(name, func(t *testing.T) {
			writeDevApp(t)
			if write(t, "shop/guest.bin", broken.source); broken.source == "" {
				if err := os.Remove("shop/guest.bin"); err != nil {
					t.Fatal(err)
				}
			}
			address := freeAddress(t)
			p := startProcess(t, nil, "dev", "shop", "--listen="+address, "--cache="+filepath.Join(t.TempDir(), "cache"))
			for _, want := range []string{broken.want, "There is nothing to serve yet."} {
				eventually(t, "dev says "+want, func() bool { return strings.Contains(p.log(), want) })
			}
			if status, code := answerOf(t, "http://"+address+"/hello"); status != http.StatusNotFound || code != "no_route" {
				t.Errorf("without an app the answer is %d %s", status, code)
			}
			write(t, "shop/guest.bin", guest("hello, world\n"))
			url := p.await(t, `is served at (http://\S+)$`)
			if got := fetch(t, http.DefaultClient, url+"/hello"); got != "hello, world\n" {
				t.Errorf("the mended app answers %q", got)
			}
			p.interrupt(t)
			p.requireNothingLeft(t)
		})
	}
}

// writeAppWithService makes the app of writeDevApp with a service on this machine
// and a command that stands for what starts it.
func writeAppWithService(t *testing.T, command string) (address string) {
	t.Helper()
	writeDevApp(t)
	address = freeAddress(t)
	text, err := os.ReadFile("shop/edgehost.toml")
	if err != nil {
		t.Fatal(err)
	}
	app, _, _ := strings.Cut(string(text), "[dev]")
	write(t, "shop/edgehost.toml", app+"[dependency.payments]\nurl = \"http://"+address+"\"\n[dev]\nrun = [\""+command+"\"]\n")
	return address
}

func TestDevIsServedOnceWhatItStartsAcceptsConnections(t *testing.T) {
	address := writeAppWithService(t, "exec sleep 1000")
	p := startProcess(t, nil, "dev", "shop", "--cache="+filepath.Join(t.TempDir(), "cache"))
	if got := p.await(t, `is served|^Waiting until payments accepts connections at (\S+)\.$`); got != address {
		t.Fatalf("dev waits for %q, want %s", got, address)
	}
	service, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, service)
	p.await(t, `is served at`)
	if strings.Contains(p.log(), "does not accept") {
		t.Errorf("dev warns of a service that is there:\n%s", p.log())
	}
}

func TestDevDoesNotWaitForWhatACommandThatEndedWouldStart(t *testing.T) {
	for _, command := range []string{"exit 3", "true"} {
		t.Run(command, func(t *testing.T) {
			address := writeAppWithService(t, command)
			p, _ := startDev(t)
			for _, want := range []string{"] ended: exit status ", "edgehost: payments does not accept connections at " + address} {
				eventually(t, "dev says "+want, func() bool { return strings.Contains(p.log(), want) })
			}
		})
	}
}

func TestCtrlCWhileDevWaitsIsNoFailure(t *testing.T) {
	writeAppWithService(t, "exec sleep 1000")
	p := startProcess(t, nil, "dev", "shop", "--cache="+filepath.Join(t.TempDir(), "cache"))
	p.await(t, `^Waiting until`)
	if took := p.interrupt(t); took > stopLimit {
		t.Errorf("stopping took %s", took)
	}
	if strings.Contains(p.log(), "does not accept") {
		t.Errorf("dev blames the service:\n%s", p.log())
	}
	p.requireNothingLeft(t)
}

func TestOnlyServicesOnThisMachineAreWaitedFor(t *testing.T) {
	for url, want := range map[string]string{
		"http://127.0.0.1:9090":    "127.0.0.1:9090",
		"https://localhost/pay":    "localhost:443",
		"http://[::1]":             "[::1]:80",
		"http://pay.example:9090":  "",
		"http://10.0.0.7:9090":     "",
		"http://localhost.example": "",
	} {
		if got := localAddress(url); got != want {
			t.Errorf("localAddress(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestASecondDevTakesFreePorts(t *testing.T) {
	writeDevApp(t)
	_, first := startDev(t)
	writeDevApp(t)
	_, second := startDev(t)
	if first == second {
		t.Errorf("both are served at %s", first)
	}
	for _, url := range []string{first, second} {
		if got := fetch(t, http.DefaultClient, url+"/hello"); got != "hello, world\n" {
			t.Errorf("%s answers %q", url, got)
		}
	}
}

func TestDevOnADirectoryInUseIsAClearError(t *testing.T) {
	writeDevApp(t)
	startDev(t)
	got := runArgs(t, os.Environ(), "dev", "shop")
	if got.code != exitFailure || !strings.Contains(got.stderr, "shop/.edgehost/nats is in use by process") {
		t.Errorf("a second dev exited with %d and printed %q", got.code, got.stderr)
	}
}

func TestKillLeavesNothingBehind(t *testing.T) {
	writeDevApp(t)
	p, _ := startDev(t)
	eventually(t, "the command runs", func() bool { return strings.Contains(p.log(), "from helper") })
	p.kill(t)
	p.requireNothingLeft(t)
}

func TestCtrlCDuringABuildIsNoFailure(t *testing.T) {
	writeApp(t, withBuild("echo building; exec sleep 1000"))
	p := startProcess(t, []string{"STRIPE_KEY=x"}, "dev", "shop")
	eventually(t, "the build runs", func() bool { return strings.Contains(p.log(), "building\n") })
	if took := p.interrupt(t); took > stopLimit {
		t.Errorf("stopping took %s", took)
	}
	p.requireNothingLeft(t)
}

func TestCtrlCEndsWhatDoesNotEndByItself(t *testing.T) {
	writeApp(t, map[string]string{
		"loop.wasm": string(conformance.Loop()),
		"edgehost.toml": `app = "shop"
[function.loop]
module = "loop.wasm"
routes = ["GET /loop"]
timeout = "5m"
[dev]
run = ["trap '' INT TERM; echo deaf; while :; do sleep 1000; done"]
`,
	})
	p, url := startDev(t)
	admin := p.await(t, `^Admin: +(http://\S+) `)
	answered := make(chan string, 1)
	go func() { answered <- fetch(t, http.DefaultClient, url+"/loop") }()
	eventually(t, "a request runs, and a command that ignores signals", func() bool {
		return strings.Contains(p.log(), "deaf\n") && strings.Contains(fetch(t, http.DefaultClient, admin+"/metrics"), `edgehost_instances{app="shop",function="loop",state="busy"} 1`)
	})
	took := p.interrupt(t)
	if t.Logf("stopping took %s", took); took > patience(devDrain+closeTimeout) {
		t.Errorf("stopping took %s", took)
	}
	<-answered
	p.requireNothingLeft(t)
}

func TestASecondCtrlCEndsDevAtOnce(t *testing.T) {
	writeApp(t, map[string]string{
		"hello.wasm": guest("hello, world\n"),
		"edgehost.toml": `app = "shop"
[function.hello]
module = "hello.wasm"
routes = ["GET /hello"]
[dev]
run = ["trap '' INT TERM; echo deaf; while :; do sleep 1000; done"]
`,
	})
	p, _ := startDev(t)
	eventually(t, "a command runs that ignores signals", func() bool { return strings.Contains(p.log(), "deaf\n") })
	p.signalGroup(syscall.SIGINT)
	p.await(t, `^(Stopping)\.`)
	p.interruptAgain(t)
	p.requireNothingLeft(t)
}

func TestSIGTERMStopsDev(t *testing.T) {
	writeDevApp(t)
	p, _ := startDev(t)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if p.state != nil {
		t.Errorf("after SIGTERM the process ended with %v", p.state)
	}
	p.requireNothingLeft(t)
}

// requireClosed checks that nobody answers at an address any more.
func requireClosed(t *testing.T, url string) {
	t.Helper()
	if got := fetch(t, http.DefaultClient, url); got != "" {
		t.Errorf("%s still answers %q", url, got)
	}
}
