package grpchealth_test

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// cutListener can break its connections.
type cutListener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newCutListener(t testing.TB) *cutListener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return &cutListener{Listener: listener}
}

func (l *cutListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

// cut resets all connections that there are.
func (l *cutListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	l.conns = nil
}
