#!/usr/bin/env bash
# gorm_suite.sh - GORM's own test suite, once as it is and once with uidplugin registered on its connections; then
# the failures of both, side by side.
#
#   git clone --branch v1.31.2 https://github.com/go-gorm/gorm somewhere
#   integration/gorm_suite.sh somewhere            on SQLite
#   integration/servers.sh run --engines mariadb -- integration/gorm_suite.sh somewhere     on MariaDB as well
#
# With TAGGED=1 every gorm.Model of the suite's models gets the tag gorm:"uid", too, so that all keys are ours. The
# checkout is copied, not changed. integration/README.md says which failures to expect.
set -euo pipefail
if [ $# != 1 ] || [ ! -d "$1/tests" ]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
plugin=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$1" "$work/gorm"
cd "$work/gorm/tests"
export GOWORK=off GOFLAGS=-mod=mod

# The plugin is registered where the suite opens its connections.
perl -0pi -e 's/\n\treturn\n\}\n\nfunc RunMigrations/\n\tif os.Getenv("WITH_UID") != "" {\n\t\terr = db.Use(uidplugin.New(uidplugin.WithLogger(nil)))\n\t}\n\treturn\n}\n\nfunc RunMigrations/; s/import \(\n/import (\n\t"github.com\/uidplugin\/uidplugin"\n/' tests_test.go
go mod edit -require github.com/uidplugin/uidplugin@v0.0.0 -replace "github.com/uidplugin/uidplugin=$plugin"
go mod tidy >/dev/null 2>&1
if [ -n "${TAGGED:-}" ]; then
  # shellcheck disable=SC2016 # the quotes are Go's
  sed -i 's/^\tgorm\.Model$/\tgorm.Model `gorm:"uid"`/' ../utils/tests/models.go ./*_test.go
fi

fails() { # NAME VARIABLE...: the names of the tests that fail, in a file
  local name=$1
  shift
  # The suite keeps its database of SQLite in the folder for temporary files.
  env TMPDIR="$work" "$@" go test -v ./... >"$work/$name.log" 2>&1 || true
  # A run that ended before its last test must not look like one without failures.
  local ran
  ran=$(grep -cE '^--- (PASS|SKIP|FAIL): ' "$work/$name.log" || true)
  [ "$ran" -ge 400 ] || { tail -n 20 "$work/$name.log" >&2; echo "only $ran tests ran" >&2; exit 1; }
  grep -oE '^\s*--- FAIL: \S+' "$work/$name.log" | awk '{print $3}' | sort -u >"$work/$name" || true
}

compare() { # ENGINE VARIABLE...
  local engine=$1
  shift
  echo "$engine: running GORM's tests twice" >&2
  fails without "$@"
  fails with "$@" WITH_UID=1
  echo "$engine: $(wc -l <"$work/without") tests fail without the plugin, $(wc -l <"$work/with") with it"
  comm -13 "$work/without" "$work/with" | sed "s/^/$engine: only with the plugin: /"
  comm -23 "$work/without" "$work/with" | sed "s/^/$engine: only without the plugin: /"
  comm -12 "$work/without" "$work/with" | sed "s/^/$engine: with and without: /"
}

compare SQLite
if [ -n "${UID_TEST_MARIADB:-}" ]; then
  compare MariaDB GORM_DIALECT=mysql "GORM_DSN=$UID_TEST_MARIADB"
fi
