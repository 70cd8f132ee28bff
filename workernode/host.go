package workernode

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Host names a process in uidplugin's Plugin.Locate and in lists of slots and sessions. Each text is cut to 64
// characters. A starting process prefers a slot of its own application, host and port. Ids are unique even if hosts
// repeat, as in containers. In uidplugin.WithHost, zero fields have the defaults described here.
type Host struct {
	// Name is the host name by default. Characters other than ASCII are escaped where a column cannot hold them.
	Name string

	// Port is by default the environment variable PORT, which Cloud Run, Heroku and others set, or JPAAS_HTTP_PORT
	// as in UidGenerator. The process id follows, as in "8080/pid-4711", because several processes of a machine may
	// have the same environment. Without these variables Port is "pid-4711". If one of them is set and the process
	// id is 1, as in a container, Port is only "8080".
	Port string

	// Kind is by default Container if Kubernetes, Docker, Podman, containerd, LXC or systemd-nspawn leave traces.
	// Otherwise it is Actual.
	Kind Kind

	// Application groups processes that write to the same tables. While worker ids are left, a process reclaims only slots
	// of its own application. By default it is the base name of the executable.
	Application string
}

func (h Host) fitted() Host {
	h.Name, h.Port, h.Application = fit(h.Name, maxHost), fit(h.Port, maxHost), fit(h.Application, maxHost)
	return h
}

// near returns the preference for a slot with the given last holder; see [lease.Row].
func (h Host) near(application, name, port string) int {
	switch {
	case application != h.Application:
		return 0
	case name != h.Name || port != h.Port:
		return 1
	}
	return 2
}

// maxHost is the width of HOST_NAME, PORT and APPLICATION.
const maxHost = 64

// DetectHost returns the defaults of a [Host] for this process. Name is "unknown" if the host name cannot be read.
func DetectHost() Host {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "unknown"
	}
	h := detect(os.DirFS("/"), os.Getenv)
	h.Name = name
	if path, err := os.Executable(); err == nil {
		h.Application = filepath.Base(path)
	}
	return h
}

func detect(root fs.FS, getenv func(string) string) Host {
	h := Host{Port: portOf(os.Getpid(), getenv), Kind: Actual}
	if contained(root, getenv) {
		h.Kind = Container
	}
	return h
}

func portOf(pid int, getenv func(string) string) string {
	port := cmp.Or(getenv("PORT"), getenv("JPAAS_HTTP_PORT"))
	switch {
	case port == "":
		return fmt.Sprintf("pid-%d", pid)
	case pid == 1: // as in a container
		return port
	}
	return fmt.Sprintf("%s/pid-%d", fit(port, maxHost-len("/pid-")-len("4194304")), pid) // the largest process id of Linux
}

// contained looks for several traces of container runtimes, because none is common to all. With cgroup v2 and a
// private namespace /proc/self/cgroup is only "0::/", so contained also looks at the mounts.
func contained(root fs.FS, getenv func(string) string) bool {
	for _, name := range [...]string{"KUBERNETES_SERVICE_HOST", "container", "JPAAS_HOST", "ECS_CONTAINER_METADATA_URI_V4"} {
		if getenv(name) != "" {
			return true
		}
	}
	for _, file := range [...]string{".dockerenv", "run/.containerenv", "run/systemd/container"} {
		if _, err := fs.Stat(root, file); err == nil {
			return true
		}
	}
	marks := map[string][]string{
		"proc/self/cgroup":    {"/docker/", "/docker-", "/kubepods", "/lxc/", "/libpod", "/containerd/", "cri-containerd", "/crio-", "/ecs/", "/garden/"},
		"proc/self/mountinfo": {"/docker/containers/", "/kubelet/pods/", "/containers/storage/", "/io.containerd"},
	}
	for file, list := range marks {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		for _, m := range list {
			// On the machine that runs containers such paths are mounted, too, but only a container has one mounted
			// below /etc, for example as /etc/hostname.
			if file == "proc/self/mountinfo" {
				if mountsEtc(string(text), m) {
					return true
				}
			} else if strings.Contains(string(text), m) {
				return true
			}
		}
	}
	return false
}

// mountsEtc reports whether a file below /etc is mounted from a path that contains mark. In mountinfo the fourth
// field is the path within the source, and the fifth the mount point.
func mountsEtc(mountinfo, mark string) bool {
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) > 4 && strings.HasPrefix(f[4], "/etc/") && strings.Contains(f[3], mark) {
			return true
		}
	}
	return false
}

// fit makes s valid UTF-8 of at most n characters. It replaces control characters, because PostgreSQL refuses the
// zero byte.
func fit(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	for utf8.RuneCountInString(s) > n {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// A Kind is the kind of machine that a process runs on: column TYPE, with UidGenerator's values. Its text is the
// upper-case name, or lower-case in JSON.
type Kind int

// The kinds of UidGenerator's WorkerNodeType.
const (
	Container Kind = 1
	Actual    Kind = 2 // a machine, physical or virtual
)

// String returns UidGenerator's name of the kind.
func (k Kind) String() string {
	switch k {
	case Container:
		return "CONTAINER"
	case Actual:
		return "ACTUAL"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}
