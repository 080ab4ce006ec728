package nodes

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

const (
	// A kubelet gives a pod its grace period; tests wait for less.
	processGrace = 3 * time.Second
	// A kubelet waits 10 seconds, then 20, up to five minutes.
	restartAtFirst = 100 * time.Millisecond
	restartAtMost  = 5 * time.Second
	// A process that ran so long is restarted as if it had never died. A
	// kubelet's is ten minutes.
	restartReset = 10 * time.Second
	// What a volume waits for: an object, a token.
	volumesRetry = 100 * time.Millisecond
	// k8s.io/kubernetes/pkg/kubelet/container MaxContainerTerminationMessageLogLength
	logMessageBytes = 2 << 10
)

// process is a container that is run, and restarted as its pod specifies.
type process struct {
	sandbox   *sandbox
	container string
	news      chan struct{} // the pod, an object or our intent changed

	mu        sync.Mutex
	pod       *corev1.Pod
	suspended bool                // another behaviour is simulated
	child     *controlplane.Child // changed by live alone
	status    corev1.ContainerStatus

	// What follows is live's own.
	mounted  *volumes
	started  time.Time
	logStart int64 // where the output of this run begins
	life     restartBackoff
	next     time.Time // of the next start
	over     bool      // ended, and by its policy for good
}

func newProcess(s *sandbox, container string) *process {
	p := &process{sandbox: s, container: container, news: make(chan struct{}, 1)}
	p.status = corev1.ContainerStatus{Name: container, State: creating("")}
	return p
}

func creating(message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: message}}
}

// poke makes live check again.
func (p *process) poke() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

func (p *process) look(pod *corev1.Pod, behaviour *Behaviour) *corev1.ContainerStatus {
	does := Runs
	if behaviour != nil && (behaviour.Container == "" || behaviour.Container == p.container) {
		does = behaviour.Does
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pod, p.suspended = pod, does != Runs
	p.poke()
	if p.suspended {
		return nil
	}
	status := *p.status.DeepCopy()
	status.Ready = status.State.Running != nil
	return &status
}

// live runs the container until ctx ends, and then ends it.
func (p *process) live(ctx context.Context) {
	defer p.stop(context.Background())
	for {
		var timer <-chan time.Time
		if wake := p.advance(ctx); !wake.IsZero() {
			timer = time.After(time.Until(wake))
		}
		var ended <-chan struct{}
		if p.child != nil {
			ended = p.child.Done()
		}
		select {
		case <-ctx.Done():
			return
		case <-p.news:
		case <-timer:
		case <-ended:
			p.reap()
		}
	}
}

// advance does what there is to do now, and reports when there will be more to do
// without a cause from outside: never, for the zero time.
func (p *process) advance(ctx context.Context) (wake time.Time) {
	pod, suspended := p.intent()
	if suspended {
		p.stop(ctx)
	}
	if pod == nil || p.over {
		return wake
	}
	// 1. The volumes are brought up to date, whether it runs or not.
	if p.mounted == nil {
		p.mounted = newVolumes(ctx, p, pod)
	}
	due, err := p.mounted.update(ctx, pod)
	if err != nil {
		return time.Now().Add(p.waits(err))
	}
	if p.child != nil || suspended {
		return due
	}
	// 2. With all of them there, it starts when it is time.
	if err := p.mounted.hostPaths(pod); err != nil {
		return time.Now().Add(p.waits(err))
	}
	if time.Now().Before(p.next) {
		return p.next
	}
	if err := p.start(pod); err != nil {
		p.set(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: err.Error()}})
		p.next = time.Now().Add(p.life.after(0))
		return p.next
	}
	p.set(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(p.started)}})
	return due
}

// reap takes note of an end. What has ended is started again, but for a policy
// against it.
func (p *process) reap() {
	pod, suspended := p.intent()
	code, message := p.outcome(pod)
	end := terminated(code, message, seconds(p.started), seconds(time.Now()))
	p.over = !suspended && isFinal(code, pod.Spec.RestartPolicy)
	p.next = time.Now().Add(p.life.after(time.Since(p.started)))
	p.mu.Lock()
	p.child = nil
	if !p.over {
		p.status.RestartCount++
		p.status.LastTerminationState = corev1.ContainerState{Terminated: end}
	}
	p.mu.Unlock()
	if p.over {
		p.set(corev1.ContainerState{Terminated: end})
	} else {
		p.set(corev1.ContainerState{Waiting: crashLoopBackOff(p.container)})
	}
}

// stop ends what runs; live reaps it, if it goes on.
func (p *process) stop(ctx context.Context) {
	if p.child == nil {
		return
	}
	if err := p.child.Stop(ctx, processGrace); err != nil {
		p.log("a process does not end", err)
	}
}

// waits returns why volumes are not ready, and when to check again.
func (p *process) waits(err error) time.Duration {
	if p.child != nil {
		p.log("a volume is not up to date", err)
		return time.Second
	}
	p.set(creating(err.Error()))
	return volumesRetry
}

func (p *process) intent() (pod *corev1.Pod, suspended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pod, p.suspended
}

// set changes the state that is shown, and has it written.
func (p *process) set(state corev1.ContainerState) {
	p.mu.Lock()
	p.status.State = state
	p.mu.Unlock()
	p.sandbox.nodes.queue.Add(p.sandbox.key)
}

func (p *process) log(what string, err error) {
	p.sandbox.nodes.log.Warn(what, "pod", p.sandbox.key, "error", err)
}

func (p *process) start(pod *corev1.Pod) error {
	n := p.sandbox.nodes
	options := n.options.Processes
	env, args, err := command(pod, options.of(pod), p.sandbox, p.mounted.rewriter)
	if err != nil {
		return err
	}
	logPath := n.logPath(pod)
	if err := os.MkdirAll(filepath.Dir(logPath), 0o755); err != nil {
		return err
	}
	p.logStart = 0
	if info, err := os.Stat(logPath); err == nil {
		p.logStart = info.Size()
	}
	child, err := controlplane.StartChild(p.sandbox.key, options.Binary, append(env, options.Env...), args, logPath)
	if err != nil {
		return err
	}
	p.started = time.Now()
	p.mu.Lock()
	p.child = child
	p.mu.Unlock()
	return nil
}

// outcome returns how a process ended, as a container's status does: a signal is
// 128 and its number.
func (p *process) outcome(pod *corev1.Pod) (code int32, message string) {
	err := p.child.Err()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = int32(exit.ExitCode())
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int32(status.Signal())
		}
	} else if err != nil {
		code = 128
	}
	container := p.sandbox.nodes.options.Processes.of(pod)
	if code != 0 && container.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		message = logEnd(p.sandbox.nodes.logPath(pod), p.logStart)
	}
	return code, message
}

func logEnd(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from = max(from, info.Size()-logMessageBytes)
	end := make([]byte, max(0, info.Size()-from))
	read, _ := f.ReadAt(end, from) // use what could be read
	return string(end[:read])
}

func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// restartBackoff doubles with every death, but for one after a long life.
type restartBackoff struct{ last time.Duration }

func (b *restartBackoff) after(life time.Duration) time.Duration {
	if b.last == 0 || life >= restartReset {
		b.last = restartAtFirst
	} else {
		b.last = min(2*b.last, restartAtMost)
	}
	return b.last
}
