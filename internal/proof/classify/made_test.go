package classify_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The errors in this file come from real failures.

func refusedDial(t *testing.T) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil
	}
	_ = l.Close()
	_, err = net.Dial("tcp", l.Addr().String())
	return err
}

func opError(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
func dialError(err error) error          { return opError("dial", err) }

// httpGet returns the error of a request to a server that answers with serve.
func httpGet(t *testing.T, timeout time.Duration, serve func(net.Conn)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	_, err = client.Get("http://" + l.Addr().String()) // it fails
	return err
}

func httpTimeout(t *testing.T) error {
	return httpGet(t, 20*time.Millisecond, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
}

func readRequest(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }

func malformedAnswer(t *testing.T) error {
	return httpGet(t, time.Minute, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "hello\r\n\r\n") })
}

func redirectLoop(t *testing.T) error {
	return httpGet(t, time.Minute, func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
}

func httpError(target string) error {
	_, err := http.Get(target) // it fails
	return err
}

func invalidHeader(t *testing.T) error {
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1", nil)
	r.Header["X"] = []string{"a\nb"}
	_, err := http.DefaultClient.Do(r) // it fails
	return err
}

func noCommand() error {
	return exec.Command("a-command-that-is-not-installed").Run() // it does not start
}

func notExecutable(t *testing.T) error {
	name := filepath.Join(t.TempDir(), "program")
	if os.WriteFile(name, []byte("\x00no program"), 0o700) != nil {
		return nil
	}
	return exec.Command(name).Run() // it does not start
}

func shell(t *testing.T, script string) error {
	if _, err := exec.LookPath("sh"); err != nil {
		return nil
	}
	return exec.CommandContext(t.Context(), "sh", "-c", script).Run()
}

func openError(t *testing.T, name string) error {
	_, err := os.Open(filepath.Join(t.TempDir(), name))
	return err
}

func mkdirError(t *testing.T) error { return os.Mkdir(t.TempDir(), 0o700) }
