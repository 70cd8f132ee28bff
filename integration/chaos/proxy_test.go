//go:build unix

package chaos_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A chaosProxy is between processes and a MySQL server. It delays, repeats and drops statements about worker ids, as
// a network can.
type chaosProxy struct {
	net.Listener
	target string
	quiet  atomic.Bool   // does nothing to statements
	delay  time.Duration // of each answer

	mu    sync.Mutex
	conns map[net.Conn]bool // the clients'
	group sync.WaitGroup

	cut  atomic.Int64 // statements that were executed, and whose answer was lost
	late atomic.Int64 // statements that were executed after their client had given up
	torn atomic.Int64 // statements that were lost half way
	shut atomic.Int64 // connections that were cut without a statement about worker ids
}

// A delayedReader returns what it reads after a while.
type delayedReader struct {
	io.Reader
	delay time.Duration
}

func (r delayedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	time.Sleep(r.delay)
	return n, err
}

func newChaosProxy(t *testing.T, target string, delay time.Duration) *chaosProxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	p := &chaosProxy{Listener: listener, target: target, delay: delay, conns: map[net.Conn]bool{}}
	p.quiet.Store(true)
	p.group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.group.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.cutAll(1)
		p.group.Wait()
	})
	return p
}

// cutAll cuts a part of all connections.
func (p *chaosProxy) cutAll(part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if rand.Float64() < part {
			_ = conn.Close()
			p.shut.Add(1)
		}
	}
}

func (p *chaosProxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, client)
		p.mu.Unlock()
	}()
	answered := make(chan struct{}) // closed after an answer that the client does not get, too
	go func() {
		_, _ = io.Copy(client, delayedReader{server, p.delay})
		_ = client.Close()
		close(answered)
	}()
	wait := func() {
		select {
		case <-answered:
		case <-time.After(5 * time.Second):
		}
	}
	var prepared bool
	for {
		packet, err := readPacket(client)
		if err != nil {
			return
		}
		hit := false
		if packet[3] == 0 && len(packet) > 5 { // a command, its first packet
			const query, prepare, execute = 0x03, 0x16, 0x17
			switch packet[4] {
			case query:
				hit = aboutWorkers(packet[5:])
			case prepare:
				prepared = aboutWorkers(packet[5:])
			case execute:
				hit = prepared
			}
		}
		fate := rand.IntN(100)
		switch {
		case !hit || p.quiet.Load():
			fate = 100
		case fate < 4: // the answer is lost
			_ = client.Close()
			if _, err := server.Write(packet); err == nil {
				p.cut.Add(1)
				wait()
			}
			return
		case fate < 8: // the client is gone, the statement comes late
			_ = client.Close()
			time.Sleep(rand.N(6 * time.Second))
			if _, err := server.Write(packet); err == nil {
				p.late.Add(1)
				wait()
			}
			return
		case fate < 10: // half of the statement
			p.torn.Add(1)
			_, _ = server.Write(packet[:len(packet)/2])
			return
		}
		if _, err := server.Write(packet); err != nil {
			return
		}
	}
}

// readPacket reads a packet of MySQL's protocol, with its header.
func readPacket(r io.Reader) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	packet := make([]byte, 4+int(header[0])+int(header[1])<<8+int(header[2])<<16)
	copy(packet, header[:])
	_, err := io.ReadFull(r, packet[4:])
	return packet, err
}

// aboutWorkers reports whether a statement changes the plugin's tables, or ends a transaction.
func aboutWorkers(statement []byte) bool {
	return bytes.HasPrefix(statement, []byte("COMMIT")) || bytes.Contains(statement, []byte("WORKER_")) &&
		!bytes.HasPrefix(statement, []byte("SELECT"))
}
