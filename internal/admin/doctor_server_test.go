package admin

import (
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Settings of a server lead to the right findings.
func TestDurability_SaysWhatACrashLoses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		settings settings
		want     []string
	}{
		{settings{}, nil},
		{settings{"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1", "log_bin": "ON"}, nil},
		{settings{"innodb_flush_log_at_trx_commit": "0"}, []string{CodeInnoDBFlush}},
		{settings{"innodb_flush_log_at_trx_commit": "2"}, []string{CodeInnoDBFlush}},
		{settings{"sync_binlog": "0", "log_bin": "OFF"}, nil},
		{settings{"sync_binlog": "0", "log_bin": "ON"}, []string{CodeSyncBinlog}},
		{settings{"sync_binlog": "100", "log_bin": "1"}, []string{CodeSyncBinlog}},
		{settings{"fsync": "on", "synchronous_commit": "on"}, nil},
		{settings{"fsync": "on", "synchronous_commit": "local"}, nil},
		{settings{"fsync": "off", "synchronous_commit": "off"}, []string{CodeFsync, CodeSynchronousCommit}},
	} {
		var got []string
		for _, f := range durabilityFindings(tt.settings) {
			got = append(got, f.Code)
			if f.Fix == "" {
				t.Errorf("%+v has no statement", f)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.settings, got, tt.want)
		}
	}
}

// Replicas that commits do not wait for are a finding, and so is a cluster that may split.
func TestReplication_SaysWhatCouldLoseCommits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		r    replication
		want []string
	}{
		{replication{}, nil},
		{replication{replicas: 2}, []string{CodeAsyncReplicas}},
		{replication{replicas: 2, waiting: 1}, nil},
		{replication{galera: true, provider: "base_port = 4567; pc.ignore_quorum = false; pc.ignore_sb = false;"}, nil},
		{replication{galera: true, provider: "pc.ignore_quorum = false; pc.ignore_sb = true;"}, []string{CodeSplitBrain}},
		{replication{galera: true, provider: "pc.ignore_quorum=YES;pc.ignore_sb=1"},
			[]string{CodeSplitBrain, CodeSplitBrain}},
		{replication{provider: "pc.ignore_sb = true"}, nil},
	} {
		var got []string
		for _, f := range tt.r.findings(10*time.Second, mysql) {
			got = append(got, f.Code)
			testkit.SaysAll(t, f.Text, "two rows could get the same id")
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.r, got, tt.want)
		}
	}
	text := replication{replicas: 1}.findings(10*time.Second, postgres)[0]
	testkit.SaysAll(t, text.Text+text.Fix, "within 12s", "synchronous_standby_names")
}
