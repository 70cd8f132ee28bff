//go:build unix

package chaos_test

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// up brings a server up, and a proxy before it.
func (c *chaos) up() {
	out, err := testkit.ServersScript("up", "mariadb")
	if err != nil {
		c.Fatal(err)
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = strings.Trim(value, "'")
	}
	c.server = values["UID_TEST_MARIADB_DIR"]
	c.Cleanup(func() {
		if _, err := testkit.ServersScript("down", c.server); err != nil {
			c.Error(err)
		}
	})
	dsn := values["UID_TEST_MARIADB"]
	_, address, _ := strings.Cut(dsn, "@tcp(")
	address, _, _ = strings.Cut(address, ")")
	c.proxy = newChaosProxy(c.T, address, *chaosDelay)
	c.proxied = strings.Replace(dsn, address, c.proxy.Addr().String(), 1)
	c.connect(dsn)
}

// crashServer crashes the server again and again, and starts it after a while.
func (c *chaos) crashServer(every, away time.Duration, stop <-chan struct{}) {
	random := rand.New(rand.NewPCG(c.seed, 1))
	for {
		select {
		case <-stop:
			return
		case <-time.After(every/2 + time.Duration(random.Int64N(int64(every)))):
		}
		begin := time.Now()
		_, err := testkit.ServersScript("kill", c.server)
		c.proxy.quiet.Store(true)
		if err == nil {
			time.Sleep(time.Duration(random.Int64N(int64(away))))
			_, err = testkit.ServersScript("start", c.server)
		}
		if err != nil {
			c.Error(err)
			return
		}
		c.mu.Lock()
		c.returns = append(c.returns, time.Now())
		c.longest = max(c.longest, time.Since(begin))
		c.mu.Unlock()
		time.Sleep(3 * time.Second) // long enough to measure the recovery of the processes
		c.proxy.quiet.Store(false)
	}
}

func (c *chaos) crashes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.returns)
}
