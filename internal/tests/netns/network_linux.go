package netns

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	namespacePrefix = "coordd-chaos-" // followed by the test's process id and the host
	maxPacket       = 9000            // bytes
	// packets in flight on one delayed link; more are lost, as in a router
	linkRoom = 4096
)

// Network is hosts that reach each other. The last one is the test itself, in its own namespace,
// with the clients.
type Network struct {
	Hosts []*Host
	rnd   *rand.Rand // guarded by mu

	mu     sync.Mutex
	faults []*Faults
	queues map[[2]int]chan delayedPacket
	done   chan struct{}
	wg     sync.WaitGroup
}

// Host is a member of a Network.
type Host struct {
	Name, Addr string
	Namespace  string // "" for the test's own
	device     string
	tun        *os.File
}

// Rule is what happens to packets in one direction between two hosts.
type Rule struct {
	Lose  float64       // this part of them, 1: all
	Delay time.Duration // each, and up to a fifth more or less
}

// Faults are rules that begin and end independently of others: a packet suffers all of them.
type Faults struct {
	w     *Network
	rules map[[2]int]Rule // by sender and receiver; guarded by the network's mu
}

type delayedPacket struct {
	packet []byte
	due    time.Time
}

// Missing returns why namespaces cannot be created here; "" if they can.
func Missing() string {
	if os.Getuid() != 0 {
		return "SKIPPED: network namespaces are made by root alone"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "SKIPPED: the command ip is not there (Debian: iproute2)"
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return "SKIPPED: there is no /dev/net/tun"
	}
	probe := fmt.Sprint(namespacePrefix, os.Getpid(), "-probe")
	if out, err := exec.Command("ip", "netns", "add", probe).CombinedOutput(); err != nil {
		return "SKIPPED: no network namespace can be made: " + strings.TrimSpace(string(out))
	}
	_ = exec.Command("ip", "netns", "del", probe).Run()
	return ""
}

// New creates the namespaces n1, n2 … and their connections, until Close.
func New(seed uint64, hosts int) (*Network, error) {
	removeLeftNamespaces()
	w := &Network{rnd: rand.New(rand.NewPCG(seed, 1)), queues: map[[2]int]chan delayedPacket{},
		done: make(chan struct{})}
	for i := range hosts + 1 {
		h := &Host{Name: fmt.Sprint("n", i+1),
			Addr:   fmt.Sprintf("198.18.%d.%d", os.Getpid()%256, i+1),
			device: fmt.Sprintf("cc%dn%d", os.Getpid(), i+1)}
		if i == hosts {
			h.Name = "clients"
		} else {
			h.Namespace = fmt.Sprint(namespacePrefix, os.Getpid(), "-", h.Name)
		}
		w.Hosts = append(w.Hosts, h)
		if err := h.connect(); err != nil {
			w.Close()
			return nil, err
		}
	}
	for i := range w.Hosts {
		w.wg.Add(1)
		go func() {
			defer w.wg.Done()
			w.carry(i)
		}()
	}
	return w, nil
}

// connect creates the host's namespace and device.
func (h *Host) connect() error {
	var err error
	if h.tun, err = openTUN(h.device); err != nil {
		return fmt.Errorf("a TUN device: %w", err)
	}
	in := []string{}
	if h.Namespace != "" {
		if err := ip("netns", "add", h.Namespace); err != nil {
			return err
		}
		if err := ip("link", "set", h.device, "netns", h.Namespace); err != nil {
			return err
		}
		in = []string{"-n", h.Namespace}
		if err := ip(append(in, "link", "set", "lo", "up")...); err != nil {
			return err
		}
	}
	if err := ip(append(in, "addr", "add", h.Addr+"/24", "dev", h.device)...); err != nil {
		return err
	}
	return ip(append(in, "link", "set", h.device, "mtu", strconv.Itoa(maxPacket), "up")...)
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// openTUN creates a TUN device, which closing the file removes.
func openTUN(name string) (*os.File, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var request [40]byte // struct ifreq: the name, 16 bytes, then flags
	copy(request[:15], name)
	binary.NativeEndian.PutUint16(request[16:], syscall.IFF_TUN|syscall.IFF_NO_PI)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		_ = syscall.Close(fd)
		return nil, errno
	}
	return os.NewFile(uintptr(fd), name), nil
}

// carry forwards what a host sends until the network is closed.
func (w *Network) carry(from int) {
	buf := make([]byte, maxPacket)
	for {
		n, err := w.Hosts[from].tun.Read(buf)
		if err != nil {
			return
		}
		if n < 20 || buf[0]>>4 != 4 {
			continue // not IPv4: neighbours looking for each other
		}
		to := w.hostOf(net.IP(buf[16:20]).String())
		if to < 0 {
			continue
		}
		lose, delay := w.fate(from, to)
		switch {
		case lose:
		case delay > 0:
			select {
			case w.queue(from, to) <- delayedPacket{append([]byte(nil), buf[:n]...),
				time.Now().Add(delay)}:
			default:
			}
		default:
			_, _ = w.Hosts[to].tun.Write(buf[:n]) // a full queue loses it
		}
	}
}

func (w *Network) hostOf(addr string) int {
	for i, h := range w.Hosts {
		if h.Addr == addr {
			return i
		}
	}
	return -1
}

// fate returns what happens to the next packet.
func (w *Network) fate(from, to int) (lose bool, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		if r, ok := f.rules[[2]int{from, to}]; ok {
			lose = lose || w.rnd.Float64() < r.Lose
			delay += time.Duration(float64(r.Delay) * (0.8 + 0.4*w.rnd.Float64()))
		}
	}
	return lose, delay
}

// queue returns the queue of a delayed link. It keeps the order of packets.
func (w *Network) queue(from, to int) chan<- delayedPacket {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]int{from, to}
	queue := w.queues[key]
	if queue == nil {
		queue = make(chan delayedPacket, linkRoom)
		w.queues[key] = queue
		w.wg.Add(1)
		go func() {
			defer w.wg.Done()
			w.deliver(queue, to)
		}()
	}
	return queue
}

func (w *Network) deliver(queue <-chan delayedPacket, to int) {
	for {
		var p delayedPacket
		select {
		case p = <-queue:
		case <-w.done:
			return
		}
		select {
		case <-time.After(time.Until(p.due)):
			_, _ = w.Hosts[to].tun.Write(p.packet)
		case <-w.done:
			return
		}
	}
}

// Faults returns an empty set of rules.
func (w *Network) Faults() *Faults {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &Faults{w: w, rules: map[[2]int]Rule{}}
	w.faults = append(w.faults, f)
	return f
}

// Set sets the rule for packets from one host to another.
func (f *Faults) Set(from, to int, r Rule) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.rules[[2]int{from, to}] = r
}

// Cut drops everything between two hosts.
func (f *Faults) Cut(a, b int) {
	f.Set(a, b, Rule{Lose: 1})
	f.Set(b, a, Rule{Lose: 1})
}

// Heal removes all rules of this set.
func (f *Faults) Heal() {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	clear(f.rules)
}

// Close removes the namespaces.
func (w *Network) Close() {
	close(w.done)
	for _, h := range w.Hosts {
		if h.tun != nil {
			_ = h.tun.Close()
		}
	}
	w.wg.Wait()
	for _, h := range w.Hosts {
		if h.Namespace != "" {
			_ = exec.Command("ip", "netns", "del", h.Namespace).Run()
		}
	}
}

// removeLeftNamespaces removes the namespaces, with their processes, of earlier runs that were
// killed.
func removeLeftNamespaces() {
	out, _ := exec.Command("ip", "netns", "list").Output()
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest, ours := strings.CutPrefix(name, namespacePrefix)
		owner, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(owner)
		if !ours || err != nil || pid == os.Getpid() || syscall.Kill(pid, 0) == nil {
			continue
		}
		for _, p := range Processes(name) {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		_ = exec.Command("ip", "netns", "del", name).Run()
	}
}

// Processes lists the processes of a namespace.
func Processes(namespace string) (pids []int) {
	out, _ := exec.Command("ip", "netns", "pids", namespace).Output()
	for _, word := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(word); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
