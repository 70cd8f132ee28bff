package workernode_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin/workernode"
)

// In these excerpts of /proc/self/mountinfo the fourth field is the root within the source, and the fifth the mount
// point.
const (
	mountsOfAMachine = `22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
`
	// Containers of the machine are mounted somewhere below /var and /run.
	mountsOfAMachineWithContainers = mountsOfAMachine +
		`101 28 0:48 / /var/lib/docker/overlay2/5c0e/merged rw,relatime shared:55 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/X
102 28 0:49 / /run/docker/netns/5d1c rw shared:56 - nsfs nsfs rw
103 28 0:50 / /var/lib/kubelet/pods/0b1a/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw
104 28 0:51 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/77aa/rootfs rw - overlay overlay rw
105 28 8:1 /var/lib/docker/containers/5c0e/mounts/shm /var/lib/docker/containers/5c0e/mounts/shm rw - tmpfs shm rw
106 28 8:1 /srv/etc/ssl /etc/ssl rw - ext4 /dev/sda1 rw
`
	mountsOfDocker = `600 500 0:48 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/X
610 600 8:1 /var/lib/docker/containers/5c0e/resolv.conf /etc/resolv.conf rw,relatime - ext4 /dev/sda1 rw
611 600 8:1 /var/lib/docker/containers/5c0e/hostname /etc/hostname rw,relatime - ext4 /dev/sda1 rw
`
	mountsOfKubernetes = `600 500 0:48 / / rw,relatime - overlay overlay rw
610 600 8:1 /var/lib/kubelet/pods/0b1a/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw
`
	mountsOfContainerd = `600 500 0:48 / / rw,relatime - overlay overlay rw
610 600 8:1 /var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/77aa/hostname /etc/hostname rw - ext4 /dev/sda1 rw
`
	mountsOfPodman = `600 500 0:48 / / rw,relatime - overlay overlay rw
610 600 0:25 /containers/storage/overlay-containers/77aa/userdata/hostname /etc/hostname rw - tmpfs tmpfs rw
`
)

// A container that is recorded as a machine misleads people who look up a worker id. A machine that runs containers is
// still a machine.
func TestDetectHost_TellsContainersFromMachines(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name  string
		files map[string]string
		env   map[string]string
		want  workernode.Kind
	}{
		{"nothing", nil, nil, workernode.Actual},
		{"machine", map[string]string{
			"proc/self/cgroup": "0::/user.slice/user-1000.slice/session-2.scope\n", "proc/self/mountinfo": mountsOfAMachine,
		}, map[string]string{"HOME": "/root", "HOSTNAME": "docker-17"}, workernode.Actual},
		{"machine, cgroup v1", map[string]string{"proc/self/cgroup": "12:pids:/user.slice\n11:cpu:/\n1:name=systemd:/init.scope\n"}, nil, workernode.Actual},
		{"service of a machine that runs containers", map[string]string{
			"proc/self/cgroup": "0::/system.slice/shop.service\n", "proc/self/mountinfo": mountsOfAMachineWithContainers,
		}, nil, workernode.Actual},

		{"Docker", map[string]string{".dockerenv": ""}, nil, workernode.Container},
		{"Docker, cgroup v1", map[string]string{"proc/self/cgroup": "12:pids:/docker/5c0e\n11:cpu:/docker/5c0e\n"}, nil, workernode.Container},
		{"Docker, cgroup v1 of systemd", map[string]string{"proc/self/cgroup": "1:name=systemd:/system.slice/docker-5c0e.scope\n"}, nil, workernode.Container},
		{"Docker, cgroup v2", map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountsOfDocker}, nil, workernode.Container},
		{"Podman", map[string]string{"run/.containerenv": ""}, nil, workernode.Container},
		{"Podman, cgroup v1", map[string]string{"proc/self/cgroup": "3:cpu:/machine.slice/libpod-77aa.scope/libpod\n"}, nil, workernode.Container},
		{"Podman, cgroup v2", map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountsOfPodman}, nil, workernode.Container},
		{"Kubernetes", nil, map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, workernode.Container},
		{"Kubernetes, cgroup v1", map[string]string{"proc/self/cgroup": "11:memory:/kubepods/burstable/pod0b1a/5c0e\n"}, nil, workernode.Container},
		{"Kubernetes, cgroup v1 of systemd", map[string]string{"proc/self/cgroup": "11:memory:/kubepods.slice/kubepods-pod0b1a.slice/cri-containerd-5c0e.scope\n"}, nil, workernode.Container},
		{"Kubernetes, cgroup v2", map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountsOfKubernetes}, nil, workernode.Container},
		{"containerd, cgroup v2", map[string]string{"proc/self/mountinfo": mountsOfContainerd}, nil, workernode.Container},
		{"LXC", map[string]string{"proc/self/cgroup": "4:devices:/lxc/web\n"}, nil, workernode.Container},
		{"systemd-nspawn", map[string]string{"run/systemd/container": "systemd-nspawn"}, nil, workernode.Container},
		{"what sets container", nil, map[string]string{"container": "lxc"}, workernode.Container},
		{"ECS", nil, map[string]string{"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/1"}, workernode.Container},
		{"UidGenerator's platform", nil, map[string]string{"JPAAS_HOST": "10.0.0.1"}, workernode.Container},
		{"broken mountinfo", map[string]string{"proc/self/mountinfo": "\n1 2\n/docker/containers/ /etc/hostname\n"}, nil, workernode.Actual},
	} {
		root := fstest.MapFS{}
		for name, text := range tt.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := workernode.Detect(root, func(name string) string { return tt.env[name] }); got.Kind != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got.Kind, tt.want)
		}
	}
}

// Formerly all processes of a host with PORT in their environment, such as web servers and workers of one file of
// variables, had the same name in the tables.
func TestDetectHost_TellsProcessesOfAHostApart(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("8", 100)
	for _, tt := range []struct {
		pid  int
		env  map[string]string
		want string
	}{
		{4711, map[string]string{"PORT": "8080"}, "8080/pid-4711"},
		{4712, map[string]string{"PORT": "8080"}, "8080/pid-4712"},
		{1, map[string]string{"PORT": "8080"}, "8080"}, // in a container, which has a host name of its own
		{4711, map[string]string{"JPAAS_HTTP_PORT": "9090"}, "9090/pid-4711"},
		{4711, map[string]string{"PORT": "8080", "JPAAS_HTTP_PORT": "9090"}, "8080/pid-4711"},
		{4194304, map[string]string{"PORT": long}, long[:52] + "/pid-4194304"},
		{4711, map[string]string{"PORT": ""}, "pid-4711"},
		{1, nil, "pid-1"},
	} {
		if got := workernode.PortOf(tt.pid, func(name string) string { return tt.env[name] }); got != tt.want || len(got) > 64 {
			t.Errorf("%v: %q, want %q", tt.env, got, tt.want)
		}
	}
	h := workernode.Detect(fstest.MapFS{}, func(string) string { return "" })
	if h.Port != fmt.Sprint("pid-", os.Getpid()) {
		t.Errorf("the port of this process is %q", h.Port)
	}
}

// On the machine of the test no part may be empty.
func TestDetectHost_HasAllParts(t *testing.T) {
	t.Parallel()

	h := workernode.DetectHost()
	if h.Name == "" || h.Port == "" || h.Application == "" || strings.Contains(h.Application, "/") || h.Kind != workernode.Container && h.Kind != workernode.Actual {
		t.Errorf("%+v", h)
	}
}

// A column holds characters. Text that is cut within one is not valid, and a server refuses the INSERT.
func TestFit_CutsCharactersNotBytes(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 4, ""},
		{"web", 4, "web"},
		{"web1", 4, "web1"},
		{"web12", 4, "web1"},
		{"größer", 4, "größ"},
		{"主机名称很长", 4, "主机名称"},
		{"a\xffb", 4, "a?b"},
		{"\xff\xfe\xfd", 1, "?"},
		{"web", 0, ""},
		{"a\x00b\nc", 9, "a?b?c"},
	} {
		got := workernode.Fit(tt.text, tt.n)
		if got != tt.want || !utf8.ValidString(got) {
			t.Errorf("fit(%q, %d) = %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

func TestInASCII_EscapesAndCutsNoEscape(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 4, ""},
		{"web-1", 64, "web-1"},
		{"web-1", 3, "web"},
		{"订单", 64, `\u8ba2\u5355`},
		{"订单", 11, `\u8ba2`},
		{"a订b", 6, "a"},
		{"é😀", 64, `\u00e9\U0001f600`},
	} {
		if got := workernode.InASCII(tt.text, tt.n); got != tt.want {
			t.Errorf("inASCII(%q, %d) = %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

// A host name of any length is cut to its column, so that the process gets a slot.
func TestManager_CutsTheHostToItsColumns(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(func(_ *workernode.Config, h *workernode.Host) {
			*h = workernode.Host{Name: strings.Repeat("主", 100), Port: "p\xff" + strings.Repeat("q", 100), Application: strings.Repeat("a", 65)}
		})
		p.assign(table("orders"))
		name, port, application := strings.Repeat("主", 64), "p?"+strings.Repeat("q", 62), strings.Repeat("a", 64)
		var n struct{ HostName, Port string }
		if must(t, w.db.Raw(`SELECT "HOST_NAME", "PORT" FROM "WORKER_NODE"`).Scan(&n).Error); n.HostName != name || n.Port != port {
			t.Errorf("%+v", n)
		}
		if s := w.slot(1); s.Host != name || s.Port != port || s.Application != application {
			t.Errorf("%+v", s)
		}
		_, o, ok, err := open(t, w.db).Trace(t.Context(), layout, 1025, w.tick())
		if must(t, err); !ok || o.Host != name || o.Port != port || o.Application != application {
			t.Errorf("%+v, %v", o, ok)
		}
	})
}

// Operators who come from UidGenerator know these names.
func TestKindString_HasTheNamesOfUidGenerator(t *testing.T) {
	t.Parallel()

	if s := fmt.Sprint(workernode.Container, workernode.Actual, workernode.Kind(0)); s != "CONTAINER ACTUAL Kind(0)" {
		t.Error(s)
	}
}
