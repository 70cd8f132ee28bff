package testkit

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"
)

// A Relay forwards connections to a server, until a test cuts the relay or routes it to another server. It may be
// used concurrently.
type Relay struct {
	Slow     atomic.Int64 // limit of the random delay of each answer, in nanoseconds
	Answered atomic.Int64 // time of the last answer, in Unix nanoseconds

	mu       sync.Mutex
	address  string       // of the listener
	server   string       // destination of connections
	listener net.Listener // nil refuses connections
	ends     map[net.Conn]bool
}

// NewRelay returns a relay to a server, and cuts it when the test ends.
func NewRelay(tb testing.TB, server string) *Relay {
	tb.Helper()
	r := &Relay{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort())), ends: map[net.Conn]bool{}}
	r.Route(tb, server)
	tb.Cleanup(r.Cut)
	return r
}

var takenPorts sync.Map

// FreePort returns a free port of 127.0.0.1, and never the same one twice in a process. It is below Linux's range
// for outgoing connections, so none of them takes the port before the test listens there.
func FreePort() int {
	for {
		port := 20000 + rand.IntN(12000)
		if _, taken := takenPorts.LoadOrStore(port, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
}

// Address returns the relay's own address. Cut and Route do not change it.
func (r *Relay) Address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.address
}

// Restore forwards connections to the last server again after Cut.
func (r *Relay) Restore(tb testing.TB) {
	tb.Helper()
	r.mu.Lock()
	server := r.server
	r.mu.Unlock()
	r.Route(tb, server)
}

// Route ends all connections, and forwards new ones to server.
func (r *Relay) Route(tb testing.TB, server string) {
	tb.Helper()
	r.Cut()
	var l net.Listener
	var err error
	for range 100 {
		if l, err = net.Listen("tcp", r.Address()); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	Must(tb, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.address, r.server, r.listener = l.Addr().String(), server, l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.pass(l, c, server)
		}
	}()
}

// Cut ends all connections, and refuses new ones.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		_ = r.listener.Close()
		r.listener = nil
	}
	for c := range r.ends {
		_ = c.Close()
	}
}

// Reset resets each end of each connection with the given probability. New connections are still accepted.
func (r *Relay) Reset(probability float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.ends {
		if tcp, ok := c.(*net.TCPConn); ok && rand.Float64() < probability {
			_ = tcp.SetLinger(0) // the peer gets a reset
			_ = tcp.Close()
		}
	}
}

func (r *Relay) pass(l net.Listener, client net.Conn, address string) {
	server, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != l { // cut meanwhile
		_, _ = client.Close(), server.Close()
		return
	}
	r.ends[client], r.ends[server] = true, true
	both := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		_, _ = client.Close(), server.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ends, client)
		delete(r.ends, server)
	}
	go both(client, answers{server, r})
	go both(server, client)
}

// answers reads from the server. Read is its only method, because io.Copy would prefer a method WriteTo.
type answers struct {
	server io.Reader
	relay  *Relay
}

func (a answers) Read(p []byte) (int, error) {
	n, err := a.server.Read(p)
	if n > 0 {
		a.relay.Answered.Store(time.Now().UnixNano())
	}
	if longest := a.relay.Slow.Load(); longest > 0 {
		time.Sleep(rand.N(time.Duration(longest)))
	}
	return n, err
}

// Open returns a handle on a database through the relay, and closes its pool when the test ends.
func (r *Relay) Open(tb testing.TB, d *Database, params ...string) *gorm.DB {
	tb.Helper()
	db, err := d.ConnectTo(r.Address(), nil, params...)
	Must(tb, err)
	tb.Cleanup(func() { _ = Close(db) })
	return db
}

// ConnectTo is like [Database.Connect], with another address of the server, such as a relay's.
func (d *Database) ConnectTo(address string, config *gorm.Config, params ...string) (*gorm.DB, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dsn := pgAddress.ReplaceAllString(d.DSN(params...), "host="+host+" port="+port)
	if d.IsMySQL() {
		dsn = mysqlAddress.ReplaceAllString(d.DSN(params...), "tcp("+address+")")
	}
	return gorm.Open(d.Dialector(dsn), quiet(config))
}

// OpenBreakable returns a handle on a database. The function cut makes it unreachable, and restore undoes this.
func OpenBreakable(tb testing.TB, d *Database) (db *gorm.DB, cut, restore func()) {
	tb.Helper()
	if d.Name == "sqlite" {
		db, wire := OpenWire(tb, d)
		return db, func() { wire.Shut.Store(true) }, func() { wire.Shut.Store(false) }
	}
	r := NewRelay(tb, d.Address())
	return r.Open(tb, d), r.Cut, func() { r.Restore(tb) }
}

var (
	mysqlAddress = regexp.MustCompile(`tcp\(([^)]*)\)`)
	pgAddress    = regexp.MustCompile(`host=(\S+) port=(\S+)`)
)

// Address returns the address of the server.
func (d *Database) Address() string {
	if d.Name == "postgres" {
		m := pgAddress.FindStringSubmatch(os.Getenv(d.Variable))
		return net.JoinHostPort(m[1], m[2])
	}
	return mysqlAddress.FindStringSubmatch(os.Getenv(d.Variable))[1]
}
