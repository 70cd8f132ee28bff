package uidplugin

import "github.com/uidplugin/uidplugin/workernode"

// A Host names a process in [Plugin.Locate] and in lists of slots and sessions. Name, Port and Application are cut to
// 64 characters. A starting process prefers a slot of its own application, host and port. Uniqueness does not depend on
// this, because host names and process ids repeat in containers.
//
// By default Name is the host name. Port is the environment variable PORT, or JPAAS_HTTP_PORT as in UidGenerator, with
// the process id, as in "8080/pid-4711". Without these it is "pid-4711", and in a container whose process id is 1 only
// "8080". Application is the base name of the executable. Kind is [workernode.Container] if Kubernetes, Docker, Podman,
// containerd, LXC or systemd-nspawn is detected.
type Host = workernode.Host
