package workernode_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// filed makes ids of two tables, closes, and returns the path of the lease file, and what
// was made. All is on boot "b1" of host web-1.
func filed(t *testing.T, c *clock) (path string, made map[int64]bool) {
	t.Helper()
	db := tables(t)
	path = filepath.Join(t.TempDir(), "leases.json")
	k, err := workernode.NewLeased(open(t, db), layout, web1, workernode.LeasedConfig{Now: c.read, File: path, Database: "db1"}.OnBoot("b1"))
	must(t, err)
	leases, err := k.Assign(t.Context(), "orders", "items")
	must(t, err)
	made = map[int64]bool{}
	for _, l := range leases {
		g, err := generator.NewCached(generator.CachedConfig{Layout: layout, Lease: l, Low: k.Need, Clock: generator.NewClock(c.read)})
		must(t, err)
		k.Keep(l, g)
		ids := make([]int64, 10_000)
		must(t, g.Fill(t.Context(), ids))
		for _, id := range ids {
			made[id] = true
		}
		g.Close()
	}
	must(t, k.Close(t.Context()))
	return path, made
}

// successor is the next process, whose database is away: nothing asks it here.
func successor(t *testing.T, c *clock, path string, change func(*workernode.LeasedConfig, *workernode.Host, *generator.Layout), boot string) *workernode.Leased {
	t.Helper()
	db := tables(t)
	config, host, l := workernode.LeasedConfig{Now: c.read, File: path, Database: "db1"}, web1, layout
	if change != nil {
		change(&config, &host, &l)
	}
	k, err := workernode.NewLeased(open(t, db), l, host, config.OnBoot(boot))
	must(t, err)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

func TestALeaseFileHasWhatIsLeftAndIsUsedOnce(t *testing.T) {
	t.Parallel()

	c := &clock{now: noon}
	path, made := filed(t, c)
	c.move(5 * time.Second)
	var mu sync.Mutex
	winners := 0
	var all sync.WaitGroup
	for range 8 {
		k := successor(t, c, path, nil, "b1")
		all.Go(func() {
			tables, err := k.TakeFile()
			if err != nil {
				if !errors.Is(err, workernode.ErrLeaseFile) {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			winners++
			mu.Unlock()
			if len(tables) != 2 {
				t.Errorf("%v", tables)
			}
			for _, table := range tables {
				l, ok := k.Adopt(table)
				if !ok {
					t.Fatalf("nothing for %s", table)
				}
				if _, ok := k.Adopt(table); ok {
					t.Errorf("twice for %s", table)
				}
				g, err := generator.NewCached(generator.CachedConfig{Layout: layout, Lease: l, Clock: generator.NewClock(c.read)})
				must(t, err)
				defer g.Close()
				n := 0
				for {
					id, err := g.Next(t.Context())
					if errors.Is(err, generator.ErrLeaseExpired) {
						break
					}
					must(t, err)
					if made[id] {
						t.Fatalf("id %d twice", id)
					}
					made[id] = true
					n++
				}
				if n < 10_000 {
					t.Errorf("%d ids were left of %s", n, table)
				}
			}
		})
	}
	all.Wait()
	if winners != 1 {
		t.Errorf("%d processes have taken it", winners)
	}
	if files, _ := filepath.Glob(path + "*"); len(files) != 0 {
		t.Errorf("left: %v", files)
	}
}

func TestALeaseFileIsRefused(t *testing.T) {
	t.Parallel()

	type change = func(*workernode.LeasedConfig, *workernode.Host, *generator.Layout)
	for name, tt := range map[string]struct {
		change change
		boot   string
		file   func(t *testing.T, path string)
		says   string
	}{
		"another boot": {boot: "b2", says: "another boot"},
		"no boot id":   {boot: "", says: "lease file"},
		"another host": {boot: "b1", change: func(_ *workernode.LeasedConfig, h *workernode.Host, _ *generator.Layout) { h.Name = "web-2" }, says: `"web-2"`},
		"another layout": {boot: "b1", change: func(_ *workernode.LeasedConfig, _ *workernode.Host, l *generator.Layout) {
			l.Epoch = l.Epoch.Add(time.Hour)
		}, says: "layout"},
		"another database": {boot: "b1", change: func(c *workernode.LeasedConfig, _ *workernode.Host, _ *generator.Layout) { c.Database = "db2" }, says: "same database"},
		"no database":      {boot: "b1", change: func(c *workernode.LeasedConfig, _ *workernode.Host, _ *generator.Layout) { c.Database = "" }, says: "same database"},
		"too late": {boot: "b1", change: func(c *workernode.LeasedConfig, _ *workernode.Host, _ *generator.Layout) {
			c.Now = (&clock{now: noon.Add(time.Minute)}).read
		}, says: "over"},
		"others may write": {boot: "b1", file: func(t *testing.T, path string) { must(t, os.Chmod(path, 0o666)) }, says: "others may write"},
		"nonsense":         {boot: "b1", file: func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("{"), 0o600)) }, says: "unexpected end"},
		"another format":   {boot: "b1", file: func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("{}"), 0o600)) }, says: "format 0"},
		"a link": {boot: "b1", file: func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".x"))
			must(t, os.Symlink(path+".x", path))
		}, says: "regular"},
		"none": {boot: "b1", file: func(t *testing.T, path string) { must(t, os.Remove(path)) }, says: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clock{now: noon}
			path, _ := filed(t, c)
			if tt.file != nil {
				tt.file(t, path)
			}
			tables, err := successor(t, c, path, tt.change, tt.boot).TakeFile()
			if !errors.Is(err, workernode.ErrLeaseFile) || len(tables) > 0 {
				t.Fatalf("%v, %v", tables, err)
			}
			saysAll(t, err.Error(), tt.says)
		})
	}
}

// Where the database is there, the file is not needed, and must not be used later.
func TestALeaseFileIsRemovedWhenTheDatabaseIsThere(t *testing.T) {
	t.Parallel()

	c := &clock{now: noon}
	path, _ := filed(t, c)
	k := successor(t, c, path, nil, "b1")
	_, err := k.Assign(t.Context(), "orders")
	must(t, err)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
