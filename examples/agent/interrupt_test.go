//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The servers have the standard error of the agent. So its other end is at its end when
// the last of them has left.
func TestMain_LeavesNoChild(t *testing.T) {
	t.Parallel()
	toProcess := func(p *os.Process, s syscall.Signal) error { return p.Signal(s) }
	toGroup := func(p *os.Process, s syscall.Signal) error { return syscall.Kill(-p.Pid, s) } // as a terminal does
	for _, c := range []struct {
		name   string
		args   []string
		at     string // what is printed before the signal
		send   func(*os.Process, syscall.Signal) error
		signal syscall.Signal
		code   int
	}{
		{"at once", nil, "I look at the order", toProcess, syscall.SIGINT, 1},
		{"in an outage", nil, "breaker opened", toProcess, syscall.SIGINT, 1},
		{"in a call", nil, "I search", toProcess, syscall.SIGTERM, 1},
		{"by the terminal", nil, "I search", toGroup, syscall.SIGINT, 1},
		{"with a page", []string{"-serve", "-addr", "127.0.0.1:0"}, "I look at the order", toProcess, syscall.SIGINT, 0},
		{"with a page, by the terminal", []string{"-serve", "-addr", "127.0.0.1:0"}, "breaker opened", toGroup, syscall.SIGINT, 0},
		{"killed", nil, "I search", toProcess, syscall.SIGKILL, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			require.NoError(t, err)
			alive, stderr, err := os.Pipe()
			require.NoError(t, err)
			defer alive.Close()
			var stdout text
			cmd := exec.Command(self, c.args...)
			cmd.Env = append(os.Environ(), mainVariable+"=1")
			cmd.Stdout, cmd.Stderr = &stdout, stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			require.NoError(t, cmd.Start())
			defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
			require.NoError(t, stderr.Close())

			await(t, c.at, stdout.String)
			require.NoError(t, c.send(cmd.Process, c.signal))
			began := time.Now()
			_ = cmd.Wait()
			assert.Equal(t, c.code, cmd.ProcessState.ExitCode(), stdout.String())
			require.NoError(t, alive.SetReadDeadline(time.Now().Add(10*time.Second)))
			said, err := io.ReadAll(alive)
			assert.NoError(t, err, "a child is left: %s", said)
			assert.Less(t, time.Since(began), 4*time.Second, "the servers end by themselves")
		})
	}
}
