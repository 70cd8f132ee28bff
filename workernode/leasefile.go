package workernode

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
)

// ErrLeaseFile reports that a lease file cannot be used, and why.
var ErrLeaseFile = errors.New("workernode: lease file")

// A lease file lets a process start while the database is away, for as long as what its
// predecessor was granted lasts: it has the ticks that were granted by acknowledged
// statements and that no id bears, when a process was closed. They are nobody else's, for
// ever, so the file is as good as the grant, as long as it is used once:
//
//   - It is written by Close alone, after the generators have ended, and never by a
//     process that makes ids; a crash leaves none.
//   - Who uses it takes it away first: it is renamed, which one process can do, the folder
//     is synced, and only then is it read.
//   - It is of one boot of one machine, of one host name, and of one address of a
//     database: after a restart of the machine, or elsewhere, it is refused.
//
// What cannot be found out is whether it was copied, within the same boot and host name: a
// running machine that is forked, a container's file system that is copied. That is what
// who switches it on promises not to do. (Leaf's file has none of this: it has a worker id
// only, with which its service starts whatever the clock says, and wherever it was copied.)
type leaseFile struct {
	Format int
	Boot   string // of the machine
	Host   string
	// Database tells the database from all others, as far as its address does.
	Database string
	Layout   string
	Leases   []fileLease
}

type fileLease struct {
	Table    string
	WorkerID int64
	From     int64
	Until    int64
}

const leaseFileFormat = 1

// bootID returns what tells this boot of the machine from all others.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return id, nil
	}
	return "", fmt.Errorf("%w: it cannot be shown that it is of this boot of the machine, which tells no boot id: %w", ErrLeaseFile, cmpErr(err))
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("it is empty")
	}
	return err
}

// writeLeaseFile writes what is left of the leases, or removes the file if that is
// nothing. The generators are closed.
func (k *Leased) writeLeaseFile() error {
	boot, err := k.config.boot()
	if err != nil {
		return err
	}
	f := leaseFile{Format: leaseFileFormat, Boot: boot, Host: k.host.Name, Database: k.config.Database, Layout: k.layout.String()}
	k.mu.Lock()
	for _, h := range k.holds {
		if h.generator == nil || h.unwritten != 0 {
			continue
		}
		used := h.generator.Usage().Tick // ids of this one may have been made
		for _, s := range h.lanes {
			if from := max(s.from, used+1); from <= s.until {
				f.Leases = append(f.Leases, fileLease{h.table, s.worker, from, s.until})
			}
		}
	}
	k.mu.Unlock()
	path := k.config.File
	if err := k.dropLeaseFile(); err != nil {
		return err
	}
	if len(f.Leases) == 0 {
		return syncFolder(path)
	}
	text, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLeaseFile, err)
	}
	temporary := path + "." + rand.Text()
	if err := writeSynced(temporary, text); err != nil {
		_ = os.Remove(temporary)
		return fmt.Errorf("%w: %w", ErrLeaseFile, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		_ = os.Remove(temporary)
		return fmt.Errorf("%w: %w", ErrLeaseFile, err)
	}
	return syncFolder(path)
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncFolder(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLeaseFile, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrLeaseFile, err)
	}
	return nil
}

// dropLeaseFile removes a file that is not needed: the database is there. What is in it
// is lost, and nobody else's either.
func (k *Leased) dropLeaseFile() error {
	if info, err := os.Lstat(k.config.File); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is no regular file", ErrLeaseFile, k.config.File)
	}
	if err := os.Remove(k.config.File); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: it cannot be removed, and must not be used later: %w", ErrLeaseFile, err)
	}
	return nil
}

// TakeFile takes what the lease file has, for a process that starts while the database is
// away: the returned tables have leases now, and [Leased.Adopt] returns them. When the
// database is back they are replaced. The error wraps [ErrLeaseFile].
func (k *Leased) TakeFile() (tables []string, err error) {
	f, err := k.takeLeaseFile()
	if err != nil {
		return nil, err
	}
	present := k.layout.TickAt(k.clock())
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range f.Leases {
		lease := generator.Lease{WorkerID: l.WorkerID, From: max(l.From, present), Until: l.Until}
		if l.Table == "" || l.WorkerID < 1 || l.WorkerID > k.layout.MaxWorkerID() || l.From < 0 || l.Until > k.layout.MaxTick() || lease.From > lease.Until {
			continue
		}
		k.adoptable = append(k.adoptable, fileLease{l.Table, lease.WorkerID, lease.From, lease.Until})
		tables = append(tables, l.Table)
	}
	if len(tables) == 0 {
		return nil, fmt.Errorf("%w: %s: all that it has is over", ErrLeaseFile, k.config.File)
	}
	return tables, nil
}

// Adopt returns a lease of the lease file for a table, and false if there is none (left).
func (k *Leased) Adopt(table string) (generator.Lease, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, l := range k.adoptable {
		if l.Table != table || k.closed {
			continue
		}
		k.adoptable = append(k.adoptable[:i:i], k.adoptable[i+1:]...)
		// Whose row it is the keeper will see.
		s := &seat{worker: l.WorkerID, table: table, compare: l.Until, from: l.From, until: l.Until, unsure: true}
		h := &hold{table: table, lanes: []*seat{s}, used: k.clock()}
		h.published = leaseOf(h.lanes)
		h.key = h.published[0]
		k.holds = append(k.holds, h)
		k.begin()
		return h.key, true
	}
	return generator.Lease{}, false
}

func (k *Leased) takeLeaseFile() (f leaseFile, err error) {
	wrong := func(format string, args ...any) (leaseFile, error) {
		return f, fmt.Errorf("%w: %s: "+format, append([]any{ErrLeaseFile, k.config.File}, args...)...)
	}
	boot, err := k.config.boot()
	if err != nil {
		return f, err
	}
	info, err := os.Lstat(k.config.File)
	switch {
	case err != nil:
		return wrong("%w", err)
	case !info.Mode().IsRegular():
		return wrong("it is no regular file")
	case info.Mode().Perm()&0o022 != 0:
		return wrong("others may write to it (%v)", info.Mode().Perm())
	}
	mine := k.config.File + "." + rand.Text()
	if err := os.Rename(k.config.File, mine); err != nil {
		return wrong("another process has taken it: %w", err)
	}
	if err := syncFolder(mine); err != nil {
		return f, err
	}
	text, err := readAll(mine)
	if err != nil {
		return wrong("%w", err)
	}
	if err := errors.Join(os.Remove(mine), syncFolder(mine)); err != nil {
		return wrong("%w", err)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return wrong("%w", err)
	}
	switch {
	case f.Format != leaseFileFormat:
		return wrong("it has the format %d, not %d", f.Format, leaseFileFormat)
	case f.Boot != boot:
		return wrong("it is of another boot of the machine, or of another machine")
	case f.Host != k.host.Name:
		return wrong("it is of the host %q, not %q", f.Host, k.host.Name)
	case k.config.Database == "" || f.Database != k.config.Database:
		return wrong("it cannot be shown that it is of the same database")
	case f.Layout != k.layout.String():
		return wrong("%w: it is of the layout %s, not %s", ErrLayoutMismatch, f.Layout, k.layout)
	}
	return f, nil
}

func readAll(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 16<<20))
	return text, errors.Join(err, f.Close())
}
