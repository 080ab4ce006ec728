package contract

import "regexp"

// podUID is the form of a pod's UID: a UUID, or the 32 hexadecimal digits that the kubelet
// computes for a static pod. It is a bounded label without dots, since the kubelet
// names the pod's folder after it.
var podUID = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?$`)

// ValidPodUID reports whether a text has the form of a pod's UID: 1 to 63 letters, digits
// and '-', with a letter or digit at both ends.
//
// The downward API (fieldRef metadata.uid) gives a container the UID that its kubelet
// knows the pod by. For a static pod that is never the metadata.uid that the API server
// shows: the kubelet takes the manifest's metadata.uid (the installer of OpenShift's static
// pods sets one), or else a hash of the manifest, the node's name and the file's path
// (applyDefaults, pkg/kubelet/config/common.go), and fills the environment from this pod
// (podFieldSelectorRuntimeValue, pkg/kubelet/kubelet_pods.go). The mirror pod is a copy
// that the API server gives a UID of its own; the static pod's UID is in the mirror's
// annotation kubernetes.io/config.hash, which applyDefaults sets. It changes when the
// manifest does, and stays when a container or the node restarts. Found in
// k8s.io/kubernetes v1.36.3.
func ValidPodUID(uid string) bool { return podUID.MatchString(uid) }
