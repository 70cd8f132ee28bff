#!/usr/bin/env bash
# servers.sh - private, throw-away database servers for the tests: MariaDB, Oracle MySQL and PostgreSQL, each on a
# free port of 127.0.0.1, with its data in memory where possible. Nothing of the system's own databases is touched.
#
#   servers.sh run [--engines mariadb,mysql,postgres] -- CMD...   bring them up, run CMD, remove them, exit as CMD did
#   servers.sh up ENGINE [DIR [OPTION...]]   bring up one that stays, with options of its command line after ours;
#                                prints KEY='VALUE' lines:  set -a; eval "$(servers.sh up mariadb)"; set +a
#   servers.sh kill DIR          kill -9: a crash            servers.sh stop DIR    clean stop, keeps the data
#   servers.sh start DIR         again: same port and data   servers.sh down DIR    kill -9 and delete everything
#   servers.sh copy DIR [NEW [OPTION...]]   a second server with the data of one that is stopped, for start; prints as up
#   servers.sh install PKG...    apt-get install whatever of PKG is missing
#
# CMD finds in its environment, for every engine that came up,
#   UID_TEST_MARIADB, UID_TEST_MYSQL   a go-sql-driver/mysql DSN     UID_TEST_POSTGRES   a pgx (GORM) DSN
#   UID_TEST_<ENGINE>_DIR              DIR for kill, start, stop
# User test, password test, database test; that user may do everything, also create users and grant.
#
# An engine that cannot be had leaves its variables unset and is named in a banner after CMD. With CI=true, run then
# fails, except for MySQL: that one comes from a distribution in motion, so its absence says nothing about this code.
# As root on Debian, missing packages are installed; MySQL is only unpacked, into ~/.cache/uidplugin-mysql (delete
# that folder to get a newer version).
# shellcheck disable=SC2317 # reachable, but by a name in a variable
set -euo pipefail

CACHE=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/uidplugin-mysql
ENGINE='' DIR='' PORT='' LOG=/dev/null OPTIONS=() # the server at hand
PATH=$PATH:/usr/sbin:/sbin             # mariadbd's place, which not everybody's PATH has

log() { echo "servers.sh: ${ENGINE:+$ENGINE: }$*" >&2; }
die() {
  log "$*"
  [ ! -d "$DIR" ] || echo "$*" >"$DIR/reason"
  exit 1
}
now() { echo "${EPOCHREALTIME//[^0-9]/}"; } # in microseconds
took() {
  local us=$(($(now) - $1))
  printf '%d.%d s' $((us / 1000000)) $((us / 100000 % 10))
}

# --- packages ---

apt() {
  # setsid: an interrupt shall not stop dpkg half way. flock: two of us queue up, as dpkg's own locks do not cover
  # all that apt-get does; the Timeout waits for anybody else's.
  setsid --wait flock /var/lib/dpkg env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
    -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" >>"$LOG" 2>&1 </dev/null
}

install() { # PACKAGE...
  local p t try missing=()
  for p; do
    dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die "not root, so please: apt-get install ${missing[*]}"
  have apt-get || die "no apt-get here to install ${missing[*]}"
  t=$(now)
  for try in 1 2 3; do
    if apt --no-install-recommends install "${missing[@]}"; then
      log "installed ${missing[*]} in $(took "$t")"
      return
    fi
    [ "$try" = 1 ] || sleep 2
    apt update || : # only now: it is slow, and mostly there is a list already
  done
  die "apt-get could not install ${missing[*]}"
}

have() { # PROGRAM...: all of them
  local p
  for p; do command -v "$p" >/dev/null || return 1; done
}

need_mariadb() {
  have mariadbd mariadb-install-db || install mariadb-server-core mariadb-client-core
  have mariadbd mariadb-install-db || die "mariadbd or mariadb-install-db is not in PATH"
  # What makes several of them a cluster. Without it only the tests of clusters are left out, and say so.
  [ "$(id -u)" != 0 ] || ! have apt-get || [ -e /usr/lib/galera/libgalera_smm.so ] || (install galera-4) || :
}

need_postgres() {
  local ok=1 dropin=/etc/postgresql-common/createcluster.d/uidplugin.conf
  PGBIN=$(find_postgres)
  if [ -z "$PGBIN" ]; then
    if [ "$(id -u)" = 0 ]; then # else installing Debian's package starts a server for the whole system
      mkdir -p "${dropin%/*}"
      echo 'create_main_cluster = false' >"$dropin"
    fi
    (install postgresql) || ok=''
    rm -f "$dropin"
    [ -n "$ok" ] || exit 1
    PGBIN=$(find_postgres)
  fi
  [ -n "$PGBIN" ] || die "no /usr/lib/postgresql/*/bin/postgres"
}
find_postgres() { # the newest version's folder
  find /usr/lib/postgresql -path '*/bin/postgres' -printf '%h\n' 2>/dev/null | sort -V | tail -n 1 || :
}

# Debian's stable releases have no Oracle MySQL, unstable has. Its package and all it depends on, libc included, are
# unpacked into a folder and never installed, so this also works without root and beside any other Debian.
need_mysql() {
  MYROOT=$CACHE/root
  [ ! -x "$MYROOT/usr/sbin/mysqld" ] || return 0
  have apt-get dpkg-deb || die "no apt-get here to fetch it with"
  mkdir -p "$CACHE" || die "cannot write to $CACHE"
  local t lock new mirror deb got=''
  exec {lock}<"$CACHE"
  flock "$lock"
  if [ ! -x "$MYROOT/usr/sbin/mysqld" ]; then
    t=$(now)
    rm -rf "$CACHE"/new.* # of somebody who was interrupted
    new=$(mktemp -d "$CACHE/new.XXXXXX")
    mkdir -p "$new/lists/partial" "$new/cache/archives/partial" "$new/root"
    : >"$new/status"
    # apt's own way of fetching (proxies and so on), but none of its hooks, sources and pins. A private mirror is
    # often a frozen one, and unstable's index expires after a week; its signature is verified all the same.
    apt-config dump | grep '^Acquire::' | grep -v '^Acquire::IndexTargets' >"$new/apt.conf" || :
    cat >>"$new/apt.conf" <<END
Dir::Etc { Main "/dev/null"; Parts "/dev/null"; SourceList "$new/sources.list"; SourceParts "/dev/null";
  Preferences "/dev/null"; PreferencesParts "/dev/null"; };
Dir::State::lists "$new/lists"; Dir::State::status "$new/status"; Dir::Cache "$new/cache";
APT::Sandbox::User "root"; APT::Install-Recommends "false"; APT::Update::Error-Mode "any";
Acquire::Check-Valid-Until "false"; Acquire::Check-Date "false"; Acquire::Languages "none";
END
    # apt tells nothing about sources that it never fetched
    [ -n "$(mirrors)" ] || [ "$(id -u)" != 0 ] || apt update || :
    for mirror in $(mirrors); do
      echo "deb $mirror sid main" >"$new/sources.list"
      (
        export APT_CONFIG=$new/apt.conf
        apt-get -q update && apt-get -qq -y --download-only install mysql-server-core
      ) >>"$LOG" 2>&1 </dev/null && got=1 && break
    done
    [ -n "$got" ] || rm -rf "$new"
    [ -n "$got" ] || die "apt's Debian mirror, if any, does not give mysql-server-core of unstable"
    for deb in "$new"/cache/archives/*.deb; do
      case ${deb##*/} in perl* | libperl*) continue ;; esac # big, and only used to install
      dpkg-deb -x "$deb" "$new/root" >>"$LOG" 2>&1 || die "cannot unpack ${deb##*/}"
    done
    mv "$new/root" "$MYROOT"
    rm -rf "$new"
    log "unpacked into $CACHE in $(took "$t")"
  fi
  exec {lock}<&-
}

mirrors() { # of Debian, that apt here uses
  # shellcheck disable=SC2016 # apt-get's variable, not ours
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian(\.list)?/?$' | sort -u || :
}

# --- what differs between the engines: how to make the data, and the command line of the server ---

# Every command line below has one of these arguments: that is how pids() finds what belongs to DIR.
#   --datadir=DIR/data   --pgdata=DIR/data   -DDIR/data

# Native asynchronous I/O is scarce for the whole machine and no use in memory. With flush_log_at_trx_commit=1 a
# kill -9 loses nothing that was acknowledged.
MYOPTS=(--socket=s.sock --bind-address=127.0.0.1 --skip-name-resolve --performance-schema=OFF --max-connections=500
  --innodb-buffer-pool-size=128M --innodb-flush-log-at-trx-commit=1 --innodb-use-native-aio=0
  --character-set-server=utf8mb4)

mysql_users() {
  echo 'FLUSH PRIVILEGES;'
  echo 'CREATE DATABASE test CHARACTER SET utf8mb4;'
  local host
  for host in % localhost; do
    echo "CREATE USER 'test'@'$host' IDENTIFIED BY 'test';"
    echo "GRANT ALL ON *.* TO 'test'@'$host' WITH GRANT OPTION;"
  done
}
mysql_dsn() { echo "test:test@tcp(127.0.0.1:$PORT)/test?charset=utf8mb4&parseTime=true&loc=UTC&time_zone=%27%2B00%3A00%27"; }
# The server sends the first packet. Nothing can be said to it by a shell, but that it talks is enough.
mysql_answers() {
  local n
  n=$( (exec 3<>"/dev/tcp/127.0.0.1/$PORT" && timeout 2 head -c 5 <&3 | wc -c) 2>/dev/null) && [ "$n" = 5 ]
}

mariadb_argv() {
  # Each server removes the temporary tables in its tmpdir when it starts, also those of others.
  ARGV=(mariadbd --no-defaults --datadir="$DIR/data" --tmpdir="$DIR" --port="$PORT" "${MYOPTS[@]}" --innodb-log-file-size=32M)
  [ "$(id -u)" != 0 ] || ARGV+=(--user=root)
}
mariadb_create() {
  mysql_users >"$DIR/users.sql"
  ARGV=(mariadb-install-db --no-defaults --datadir="$DIR/data" --tmpdir="$DIR" --auth-root-authentication-method=normal --skip-test-db
    --skip-name-resolve --innodb-log-file-size=32M --extra-file="$DIR/users.sql")
  [ "$(id -u)" != 0 ] || ARGV+=(--user=root)
  env -C "$DIR" "${ARGV[@]}"
}
mariadb_dsn() { mysql_dsn; }
mariadb_answers() { mysql_answers; }

mysql_base() { # through the unpacked loader, as the system's libc is another one
  local loader lib
  loader=$(find "$MYROOT"/usr/lib* -name 'ld-linux-*.so.*' | head -n 1)
  lib=$(find "$MYROOT/usr/lib" -maxdepth 1 -name '*-linux-gnu*' | head -n 1)
  ARGV=("$loader" --library-path "$lib:$MYROOT/usr/lib/mysql/private" "$MYROOT/usr/sbin/mysqld" --no-defaults
    --datadir="$DIR/data" --basedir="$MYROOT/usr" --lc-messages-dir="$MYROOT/usr/share/mysql"
    --character-sets-dir="$MYROOT/usr/share/mysql/charsets" --plugin-dir="$MYROOT/usr/lib/mysql/plugin"
    --secure-file-priv=NULL --innodb-redo-log-capacity=32M --skip-log-bin)
  [ "$(id -u)" != 0 ] || ARGV+=(--user=root)
}
mysql_argv() {
  mysql_base
  ARGV+=(--port="$PORT" --mysqlx=0 "${MYOPTS[@]}")
}
mysql_create() {
  mysql_users >"$DIR/users.sql"
  mysql_base
  env -C "$DIR" "${ARGV[@]}" --initialize-insecure --init-file="$DIR/users.sql"
}

postgres_as() { # it refuses to be root
  local user=postgres
  AS=()
  [ "$(id -u)" = 0 ] || return 0
  id "$user" >/dev/null 2>&1 || user=nobody
  AS=(setpriv --reuid="$(id -u "$user")" --regid="$(id -g "$user")" --clear-groups)
}
# The name shows up in the titles of its processes, which no longer have their command line.
postgres_name() { echo "test $(printf %s "$DIR" | md5sum | cut -c 1-32)"; }
postgres_argv() { # shared memory as files: a kill -9 would leave it behind in /dev/shm
  postgres_as
  ARGV=("${AS[@]}" "$PGBIN/postgres" -D"$DIR/data" -c "cluster_name=$(postgres_name)" -c "port=$PORT"
    -c listen_addresses=127.0.0.1 -c "unix_socket_directories=$DIR/data" -c max_connections=300
    -c shared_buffers=128MB -c dynamic_shared_memory_type=mmap -c max_wal_size=256MB -c TimeZone=UTC)
}
postgres_create() {
  postgres_as
  mkdir "$DIR/data"
  if [ "$(id -u)" = 0 ]; then
    chown "$("${AS[@]}" id -u):$("${AS[@]}" id -g)" "$DIR/data" "$DIR/tmp"
    "${AS[@]}" test -x "$DIR/data" || die "user $("${AS[@]}" id -un) cannot get into $DIR"
  fi
  # setsid: an interrupt shall not stop it half way, see crash()
  setsid --wait env -C "$DIR/data" "${AS[@]}" "$PGBIN/initdb" --pgdata="$DIR/data" --no-sync --auth=trust \
    --username=test --encoding=UTF8 --locale=C
  echo 'CREATE DATABASE test' | env -C "$DIR/data" "${AS[@]}" "$PGBIN/postgres" --single -D"$DIR/data" \
    -c dynamic_shared_memory_type=mmap postgres
}
postgres_dsn() { echo "host=127.0.0.1 port=$PORT user=test password=test dbname=test sslmode=disable TimeZone=UTC"; }
postgres_answers() { "$PGBIN/pg_isready" -q -t 2 -h 127.0.0.1 -p "$PORT" -U test -d test; }

# --- the life of a server ---

pids() { # [OPTION]: of everything that works on DIR (or was given DIR as that OPTION) and of nothing else
  local re="^(${1:---datadir=|--pgdata=|-D})${DIR//./\\.}/data\$"
  [ $# -gt 0 ] || re+="|^postgres: $(postgres_name)(:|\$)"
  { grep -lzsE -e "$re" /proc/[0-9]*/cmdline || :; } | cut -d / -f 3 # || : as processes end while it reads
}

signal() { # SIGNAL PID...
  kill -"$1" -- "${@:2}" 2>/dev/null || : # gone meanwhile
}

# Below Linux's ephemeral range, so that no outgoing connection takes it, and not that of a server just stopped.
free_port() {
  local p
  while :; do
    p=$((20000 + RANDOM % 12000))
    ! (: <>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || continue
    ! grep -qsx "PORT=$p" "${DIR%/*}"/uidplugin-*/conf || continue
    echo "$p"
    return
  done
}

load() { # DIR: as up() left it
  DIR=$(realpath -m "$1")
  [ -f "$DIR/conf" ] || { DIR='' && die "$1 is not a folder of servers.sh"; }
  # shellcheck disable=SC1091
  . "$DIR/conf"
  LOG=$DIR/log
}

launch() { # returns when the server answers
  local pid t i sock=$DIR/data/s.sock
  t=$(now)
  [ "$ENGINE" != postgres ] || sock=$DIR/data/.s.PGSQL.$PORT
  rm -f "$sock" "$sock.lock" "$DIR/data/postmaster.pid" # pid files lie after a crash
  "${ENGINE}_argv"
  ARGV+=("${OPTIONS[@]}")
  # setsid does not fork here, as this is no process group leader: the pid is that of the server in the end.
  # No descriptor of ours may stay open in it, or whoever reads our output waits for the server's end.
  TMPDIR=$DIR/tmp LC_ALL=C setsid env -C "$DIR/data" "${ARGV[@]}" </dev/null >>"$LOG" 2>&1 &
  pid=$!
  echo "$pid" >"$DIR/pid"
  for ((i = 0; i < 2400; i++)); do
    kill -0 "$pid" 2>/dev/null || return 1
    # The socket file comes after the port: what answers there is this server and no other.
    if [ -S "$sock" ] && "${ENGINE}_answers"; then
      log "ready in $(took "$t"), port $PORT, $DIR"
      return 0
    fi
    sleep 0.025
  done
  log "no answer for a minute"
  crash
  return 1
}

crash() {
  local p i f=$DIR/data/postmaster.pid
  if [ "$ENGINE" = postgres ]; then
    # initdb cannot be told to keep out of /dev/shm and would leave its shared memory there; it is soon done
    for ((i = 0; i < 200; i++)); do
      [ -n "$(pids --pgdata=)" ] || break
      sleep 0.05
    done
  fi
  while p=$(pids) && [ -n "$p" ]; do
    # Stopped first, so that no process of postgres gets to say goodbye because another one is gone.
    # shellcheck disable=SC2086 # several
    signal STOP $p
    # shellcheck disable=SC2086
    signal KILL $p
    sleep 0.02
  done
  if [ -f "$f" ]; then # System V shared memory outlives its processes; line 7 has its key and id
    postgres_as
    awk 'NR == 7 { it = $1 " " $2 } NR > FNR && $1 " " $2 == it { print $2 }' "$f" /proc/sysvipc/shm |
      xargs -r -n 1 "${AS[@]}" ipcrm -m || :
  fi
}

halt() {
  local p i sig=TERM
  [ "$ENGINE" != postgres ] || sig=INT # "fast": with TERM it waits for its clients to leave
  p=$(cat "$DIR/pid" 2>/dev/null) && pids | grep -x "$p" >/dev/null || return 0 # not running, or that pid is somebody else now
  signal "$sig" "$p"
  # shellcheck disable=SC2046 # several; a test may have stopped them
  signal CONT $(pids)
  for ((i = 0; i < 2400; i++)); do
    [ -n "$(pids)" ] || return 0
    sleep 0.025
  done
  die "did not stop within a minute"
}

remove() {
  crash
  rm -rf "$DIR"
}

base() { # where the data goes: in memory, unless there is only a little of it, as in many containers
  if [ -w /dev/shm ] && [ "$(df --output=avail -B1M /dev/shm | tail -n 1)" -ge 2048 ]; then
    echo /dev/shm
  else
    echo "${TMPDIR:-/tmp}"
  fi
}

# The name is known before the folder is there: an interrupt leaves nothing behind.
new_name() { echo "$(base)/uidplugin-$1.$$.$RANDOM"; }

prepare() { # ENGINE DIR [OPTION...]: makes DIR, so that remove() works whatever happens next
  local d
  ENGINE=$1
  case $ENGINE in mariadb | mysql | postgres) ;; *) die "no such engine" ;; esac
  d=$(realpath -m "$2")
  case $d in *[!A-Za-z0-9_./,=@-]*) die "unusual characters in $d" ;; esac
  [ ${#d} -le 80 ] || die "too long a path for a socket: $d"
  if [ -e "$d" ] && [ -n "$(ls -A "$d")" ]; then die "$d is not empty"; fi
  DIR=$d
  LOG=$DIR/log
  mkdir -p "$DIR/tmp"
  : >"$LOG"
  chmod 755 "$DIR" # postgres is another user
  OPTIONS=("${@:3}")
  printf '%s\n' "ENGINE=$ENGINE" "OPTIONS=(${OPTIONS[*]@Q})" >"$DIR/conf"
}

copy_data() { # FROM TO: the data of a server that does not run
  cp -a "$1/data" "$1/tmp" "$2"
  rm -f "$2/data/auto.cnf" # the name that MySQL gave the other server
}

create() { # [keep]: what prepare() promised; "keep" keeps a copy of the data for servers that tests start
  local t try fresh
  "need_$ENGINE"
  printf '%s=%q\n' MYROOT "${MYROOT:-}" PGBIN "${PGBIN:-}" >>"$DIR/conf"
  t=$(now)
  echo 'could not make its data folder' >"$DIR/reason"
  fresh=UID_TEST_${ENGINE^^}_DIR
  fresh=${!fresh:-}/fresh
  if [ -d "$fresh" ]; then
    copy_data "$fresh" "$DIR" # takes a tenth of the time
  else
    ("${ENGINE}_create") </dev/null >>"$LOG" 2>&1 # in a subshell, so that a trap on EXIT does not print into LOG
  fi
  if [ "${1:-}" = keep ]; then
    mkdir "$DIR/fresh"
    copy_data "$DIR" "$DIR/fresh"
  fi
  rm "$DIR/reason"
  log "data folder made in $(took "$t")"
  for try in 1 2 3; do # somebody else may be faster to take the port
    PORT=$(free_port)
    sed -i '/^PORT=/d' "$DIR/conf"
    echo "PORT=$PORT" >>"$DIR/conf"
    ! launch || break
    [ "$try" -lt 3 ] || die "did not start"
    tail -n 30 "$LOG" | grep -i 'address already in use' >/dev/null || die "did not start"
  done
  write_env
}

write_env() {
  local key=UID_TEST_${ENGINE^^}
  printf "%s='%s'\n" "$key" "$("${ENGINE}_dsn")" "${key}_DIR" "$DIR" >"$DIR/env"
}

# --- commands ---

or_remove() { # whatever fails from here on leaves nothing
  # shellcheck disable=SC2154 # code is set in here
  trap 'code=$?; [ -z "$DIR" ] || { tail -n 20 "$LOG" >&2; remove; }; exit "$code"' EXIT
  trap 'exit 130' INT TERM HUP
}

up() { # ENGINE [DIR [OPTION...]]
  or_remove
  prepare "$1" "${2:-$(new_name "$1")}" "${@:3}"
  create
  cat "$DIR/env"
  trap - EXIT
}

copy() { # DIR [NEW [OPTION...]]
  local from
  load "$1"
  from=$DIR
  DIR=''
  [ -z "$(DIR=$from pids)" ] || die "$from runs; stop it first"
  or_remove
  prepare "$ENGINE" "${2:-$(new_name "$ENGINE")}" "${@:3}"
  copy_data "$from" "$DIR"
  PORT=$(free_port)
  { grep -E '^(MYROOT|PGBIN)=' "$from/conf" && echo "PORT=$PORT"; } >>"$DIR/conf"
  write_env
  cat "$DIR/env"
  trap - EXIT
}

run() { # [--engines LIST] -- CMD...
  local engines=mariadb,mysql,postgres e code=0
  if [ "${1:-}" = --engines ] && [ $# -ge 2 ]; then
    engines=$2
    shift 2
  fi
  if [ "${1:-}" != -- ] || [ $# -lt 2 ]; then usage; fi
  shift

  declare -gA DIRS=() JOBS=() MISSING=()
  CHILD='' SIGNAL=TERM
  trap finish EXIT
  trap 'SIGNAL=INT; exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  # shellcheck disable=SC2086 # a list
  for e in ${engines//,/ }; do
    unset "UID_TEST_${e^^}" "UID_TEST_${e^^}_DIR"
    DIRS[$e]=$(new_name "$e")
    prepare "$e" "${DIRS[$e]}"
  done
  ENGINE='' DIR=''
  set -m # a process group for each, so that finish() can end all of it
  for e in "${!DIRS[@]}"; do
    (
      set +m
      load "${DIRS[$e]}"
      create keep
    ) </dev/null &
    JOBS[$e]=$!
  done
  for e in "${!JOBS[@]}"; do
    if wait "${JOBS[$e]}"; then
      set -a
      # shellcheck disable=SC1091
      . "${DIRS[$e]}/env"
      set +a
    else
      MISSING[$e]=1
    fi
    unset "JOBS[$e]"
  done
  ! incomplete || banner

  # In the background, as the shell would not act on a signal before CMD is done. Its group cannot read from a terminal.
  [ ! -t 0 ] || exec </dev/null
  "$@" &
  CHILD=$!
  set +m
  wait "$CHILD" || code=$?
  CHILD=''
  [ "$code" != 0 ] || ! incomplete || code=3
  exit "$code"
}

incomplete() { # is something missing that must not be?
  [ "${CI:-}" = true ] && [ -n "${MISSING[mariadb]:-}${MISSING[postgres]:-}" ]
}

banner() {
  local e
  {
    for e in "${!MISSING[@]}"; do
      echo "############################################################################"
      echo "##  NOT TESTED WITH ${e^^}: $(cat "${DIRS[$e]}/reason" 2>/dev/null || echo 'see below')"
      tail -n 15 "${DIRS[$e]}/log" | sed 's/^/##    /'
      echo "############################################################################"
    done
  } >&2
}

finish() { # whatever happened
  local code=$? e i
  trap '' INT TERM HUP
  set +em
  for e in "${!JOBS[@]}"; do
    signal TERM "-${JOBS[$e]}"
    wait "${JOBS[$e]}" 2>/dev/null
  done
  if [ -n "$CHILD" ]; then
    signal "$SIGNAL" "-$CHILD"
    for ((i = 0; i < 200; i++)); do
      kill -0 "$CHILD" 2>/dev/null || break
      sleep 0.05
    done
    signal KILL "-$CHILD" # it, if it did not obey, and its children
  fi
  banner
  for e in "${!DIRS[@]}"; do
    (load "${DIRS[$e]}" && remove) 2>/dev/null || rm -rf "${DIRS[$e]}"
  done
  exit "$code"
}

usage() {
  sed -n '2,/^# shellcheck/{/^# shellcheck/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

main() {
  case ${1:-} in
  run) run "${@:2}" ;;
  up)
    [ $# -ge 2 ] || usage
    up "${@:2}"
    ;;
  copy)
    [ $# -ge 2 ] || usage
    copy "${@:2}"
    ;;
  start | stop | kill)
    [ $# = 2 ] || usage
    load "$2"
    case $1 in
    start) [ -n "$(pids)" ] || launch || die "did not start, see $LOG" ;;
    stop) halt ;;
    kill) crash ;;
    esac
    ;;
  down)
    [ $# = 2 ] || usage
    [ -e "$2" ] || exit 0
    load "$2"
    remove
    ;;
  install)
    LOG=$(mktemp)
    trap 'code=$?; [ "$code" = 0 ] || tail -n 20 "$LOG" >&2; rm -f "$LOG"; exit "$code"' EXIT
    install "${@:2}"
    ;;
  *) usage ;;
  esac
  exit # before the shell reads on: somebody may have edited this file while it ran
}

main "$@"
