package stored

import (
	"cmp"
	"strings"
)

// DefaultPrefixes are kube-apiserver's own, and those of OpenShift's API servers.
var DefaultPrefixes = []string{"/registry", "/kubernetes.io", "/openshift.io"}

// storedAs are the paths of resources that are not stored by their name (SpecialDefaultResourcePrefixes of
// kube-apiserver, and OpenShift's that share a folder).
var storedAs = map[string]string{
	"controllers":                "replicationcontrollers",
	"ingress":                    "ingresses",
	"minions":                    "nodes",
	"oauth/accesstokens":         "oauthaccesstokens",
	"oauth/authorizetokens":      "oauthauthorizetokens",
	"oauth/clientauthorizations": "oauthclientauthorizations",
	"oauth/clients":              "oauthclients",
	"services/endpoints":         "endpoints",
	"services/specs":             "services",
}

// resourceOf returns the resource of a key below a prefix, as kubectl names it, and the range of its keys; end is not
// in it. Keys are RESOURCE/[NAMESPACE/]NAME for most built-in types, and GROUP/RESOURCE/[NAMESPACE/]NAME for custom
// resources: a group has a dot, a resource has none. An aggregated API server has a prefix of its own, most often its
// group: GROUP/GROUP/RESOURCE/[NAMESPACE/]NAME.
func resourceOf(prefix, key string) (name, from, end string) {
	parts := strings.Split(strings.TrimPrefix(key, prefix), "/")
	at := 0
	for at < len(parts)-2 && strings.Contains(parts[at], ".") {
		at++
	}
	name = parts[at]
	if at > 0 {
		name += "." + parts[at-1]
	}
	if len(parts) > 2 && storedAs[strings.Join(parts[:2], "/")] != "" {
		at = 1
	}
	if at+1 >= len(parts) { // a key that is no folder
		return name, key, key + "\x00"
	}
	path := strings.Join(parts[:at+1], "/")
	return cmp.Or(storedAs[path], name), prefix + path + "/", prefix + path + "0" // the character after /
}
