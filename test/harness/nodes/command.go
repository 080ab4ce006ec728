package nodes

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"

	corev1 "k8s.io/api/core/v1"
)

// command returns the environment and the arguments of a container's process.
func command(pod *corev1.Pod, container *corev1.Container, s *sandbox, r *rewriter) (env, args []string, err error) {
	values := map[string]string{}
	set := func(name, value string) {
		values[name] = value
		env = append(env, name+"="+value)
	}
	set("PATH", os.Getenv("PATH"))
	host, port := apiServer(s.nodes.config.Host)
	set("KUBERNETES_SERVICE_HOST", host)
	set("KUBERNETES_SERVICE_PORT", port)
	for _, variable := range container.Env {
		value := r.rewrite(expand(variable.Value, values))
		if from := variable.ValueFrom; from != nil {
			if from.FieldRef == nil {
				return nil, nil, fmt.Errorf("environment variable %s: the simulated kubelet supports no source but fieldRef", variable.Name)
			}
			if value, err = field(pod, from.FieldRef.FieldPath, s); err != nil {
				return nil, nil, fmt.Errorf("environment variable %s: %w", variable.Name, err)
			}
		}
		set(variable.Name, value)
	}
	if len(container.EnvFrom) > 0 {
		return nil, nil, fmt.Errorf("the simulated kubelet does not support envFrom")
	}
	words := container.Args
	if len(container.Command) > 1 {
		words = append(append([]string(nil), container.Command[1:]...), words...)
	}
	for _, word := range words {
		args = append(args, r.rewrite(expand(word, values)))
	}
	return env, args, nil
}

func apiServer(rawURL string) (host, port string) {
	parsed, err := url.Parse(rawURL)
	if err != nil {
		return "", ""
	}
	if host, port, err = net.SplitHostPort(parsed.Host); err != nil {
		return parsed.Host, "443"
	}
	return host, port
}

var reference = regexp.MustCompile(`\$\$|\$\([^)]*\)`)

// expand replaces $(NAME) where NAME is known, and $$ by $
// (k8s.io/kubernetes/third_party/forked/golang/expansion).
func expand(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, known := values[found[2:len(found)-1]]; known {
			return value
		}
		return found
	})
}

var subscript = regexp.MustCompile(`^metadata\.annotations\['(.*)'\]$`)

// field returns what the downward API gives for a path, of those that manifests use.
func field(pod *corev1.Pod, path string, s *sandbox) (string, error) {
	if parts := subscript.FindStringSubmatch(path); parts != nil {
		return pod.Annotations[parts[1]], nil
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return s.identity, nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	}
	return "", fmt.Errorf("the simulated kubelet does not support the field %s", path)
}
