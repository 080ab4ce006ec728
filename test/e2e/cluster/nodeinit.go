package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// nodeInitName is a process's name while it is the first one of a node.
const nodeInitName = "kms-health-node"

// nodeInit is what the first process of a node receives.
type nodeInit struct {
	Name     string
	Dir      string            // of this node, on the host
	Binds    map[string]string // folders of the host, by their path in the node
	ReadOnly map[string]string // the same, read-only
}

// Main makes this process a node if it was started as one, and then never
// returns. Programs that use this package call it before anything else.
func Main() {
	if os.Args[0] != nodeInitName {
		return
	}
	var n nodeInit
	err := json.Unmarshal([]byte(os.Args[1]), &n)
	if err == nil {
		err = n.enter()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", nodeInitName, err)
		os.Exit(1)
	}
	// The harness waits for this line.
	fmt.Println("ready")
	reap()
}

// reap waits for orphaned processes, which become children of the first process.
func reap() {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, unix.SIGCHLD)
	// It ends by SIGKILL from outside, and nothing else.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	for range signals {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
}

// enter makes the node's root, and goes there. The mounts are this namespace's
// alone.
func (n *nodeInit) enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	root := filepath.Join(n.Dir, "root")
	if err := n.mountRoot(root); err != nil {
		return err
	}
	if err := pivot(root); err != nil {
		return err
	}
	// The kubelet's volumes and the containers' roots are mounts that others see.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	if err := unix.Sethostname([]byte(n.Name)); err != nil {
		return fmt.Errorf("set the host's name: %w", err)
	}
	for _, setting := range []string{"ipv4/ip_forward", "ipv4/conf/all/route_localnet"} {
		if err := os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0o644); err != nil {
			return err
		}
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip link set lo up: %w: %s", err, out)
	}
	return nil
}

// mountRoot makes the folders that the node sees.
func (n *nodeInit) mountRoot(root string) error {
	if err := mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, folder := range []string{"bin", "sbin", "lib", "lib64", "usr"} {
		if err := share(root, "/"+folder); err != nil {
			return err
		}
	}
	upper, work := filepath.Join(n.Dir, "etc"), filepath.Join(n.Dir, "etc.work")
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mount("overlay", filepath.Join(root, "etc"), "overlay", 0,
		"lowerdir=/etc,upperdir="+upper+",workdir="+work); err != nil {
		return err
	}
	for _, dir := range []string{"var/lib", "root", "opt"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", filepath.Join(root, "var/run")); err != nil {
		return err
	}
	mounts := []error{
		mount("proc", filepath.Join(root, "proc"), "proc", 0, ""),
		mount("/sys", filepath.Join(root, "sys"), "", unix.MS_BIND|unix.MS_REC, ""),
		mount("/dev", filepath.Join(root, "dev"), "", unix.MS_BIND|unix.MS_REC, ""),
		mount("tmpfs", filepath.Join(root, "run"), "tmpfs", 0, "mode=755"),
		mount("tmpfs", filepath.Join(root, "tmp"), "tmpfs", 0, "mode=1777"),
	}
	for path, from := range n.Binds {
		mounts = append(mounts, os.MkdirAll(from, 0o755), mount(from, filepath.Join(root, path), "", unix.MS_BIND, ""))
	}
	for path, from := range n.ReadOnly {
		mounts = append(mounts, mount(from, filepath.Join(root, path), "", unix.MS_BIND, ""),
			unix.Mount("", filepath.Join(root, path), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
	return errors.Join(mounts...)
}

func mount(from, to, kind string, flags uintptr, data string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	return nil
}

// share shows a folder of the host in the new root, read-only; or the link that it
// is there.
func share(root, folder string) error {
	info, err := os.Lstat(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	target := filepath.Join(root, folder)
	if info.Mode()&os.ModeSymlink != 0 {
		link, err := os.Readlink(folder)
		if err != nil {
			return err
		}
		return os.Symlink(link, target)
	}
	if err := mount(folder, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func pivot(root string) error {
	const old = "/.old"
	if err := os.Mkdir(root+old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, root+old); err != nil {
		return fmt.Errorf("change the root to %s: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount(old, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root: %w", err)
	}
	return os.Remove(old)
}
