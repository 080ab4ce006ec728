package v1alpha1

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Bounds of a valid configuration.
const (
	MinInterval     = time.Second
	MaxInterval     = time.Hour
	MinTimeout      = 10 * time.Millisecond
	MinRoundTrip    = time.Minute
	MaxRoundTrip    = 24 * time.Hour
	MinWriteTimeout = 100 * time.Millisecond
	MaxWriteTimeout = time.Minute
	// MaxPlugins keeps a message with one entry per plugin within its bound. An
	// API server has one plugin, and two during a migration.
	MaxPlugins = 16
	// MaxServers is enough for the node's own API server and two addresses of the others.
	MaxServers = 4
	// maxElements bounds what has no lower bound of its own.
	maxElements = 64
	// maxSocketPath is sizeof(sockaddr_un.sun_path) less its final NUL, unix(7).
	maxSocketPath = 107
)

// ValidKeyID reports whether a string can be a plugin's keyID.
func ValidKeyID(id string) bool { return contract.IsWord(id, "-_.") }

func keyIDRules(id string) []string {
	if ValidKeyID(id) {
		return nil
	}
	return []string{"must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit"}
}

func socketRules(endpoint string) []string {
	if _, err := SocketAddress(endpoint); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// PluginSetHash is the contract.ConfigHash of a plugin set.
func PluginSetHash(plugins []Plugin) string {
	sockets := make([]contract.Socket, len(plugins))
	for i, p := range plugins {
		sockets[i] = contract.Socket{KeyID: p.KeyID, Endpoint: p.Endpoint}
	}
	return contract.ConfigHash(sockets)
}

func validate(c *ReporterConfiguration) field.ErrorList {
	errs := validateProbe(field.NewPath("probe"), &c.Probe)
	errs = append(errs, validatePlugins(field.NewPath("plugins"), c.Plugins, c.Probe.Interval.Duration)...)
	if c.Destination != nil {
		errs = append(errs, validateDestination(field.NewPath("destination"), c.Destination)...)
	}
	if c.Serving != nil {
		errs = append(errs, validateServing(field.NewPath("serving"), c.Serving)...)
	}
	return errs
}

func validateProbe(path *field.Path, p *Probe) field.ErrorList {
	errs := between(path.Child("interval"), p.Interval, MinInterval, MaxInterval)
	if p.Checks.RoundTrip.Interval == off {
		return errs
	}
	for _, e := range between(path.Child("checks", "roundTrip", "interval"), p.Checks.RoundTrip.Interval, MinRoundTrip,
		MaxRoundTrip) {
		e.Detail += "; 0s is off"
		errs = append(errs, e)
	}
	return errs
}

func validatePlugins(path *field.Path, plugins []Plugin, interval time.Duration) field.ErrorList {
	var errs field.ErrorList
	if plugins == nil {
		return append(errs, field.Required(path, "use an empty list, [], to probe nothing"))
	}
	if len(plugins) > MaxPlugins {
		return append(errs, field.TooMany(path, len(plugins), MaxPlugins))
	}
	keyIDs, endpoints := map[string]bool{}, map[string]bool{}
	for i := range plugins {
		p, at := &plugins[i], path.Index(i)
		errs = append(errs, validatePlugin(at, p, interval)...)
		if p.KeyID != "" && keyIDs[p.KeyID] {
			errs = append(errs, field.Duplicate(at.Child("keyID"), p.KeyID))
		}
		keyIDs[p.KeyID] = true
		if socket, err := SocketAddress(p.Endpoint); err == nil {
			if endpoints[CleanSocket(socket)] {
				errs = append(errs, field.Duplicate(at.Child("endpoint"), short(p.Endpoint)))
			}
			endpoints[CleanSocket(socket)] = true
		}
	}
	return errs
}

func validatePlugin(at *field.Path, p *Plugin, interval time.Duration) field.ErrorList {
	errs := word(at.Child("keyID"), p.KeyID, keyIDRules,
		fmt.Sprintf("cannot be taken from the endpoint %q, which does not end in kms-{keyID}.sock", short(p.Endpoint)))
	errs = append(errs, word(at.Child("endpoint"), p.Endpoint, socketRules,
		"the plugin's socket, as unix:///absolute/path or unix:///@name")...)
	errs = append(errs, oneOf(at.Child("role"), p.Role, RoleWrite, RoleRead)...)
	if interval >= MinInterval && p.Timeout.Duration > interval {
		return append(errs, field.Invalid(at.Child("timeout"), p.Timeout.shown(),
			fmt.Sprintf("must be at most probe.interval, %s", interval)))
	}
	return append(errs, between(at.Child("timeout"), p.Timeout, MinTimeout, MaxInterval)...)
}

// SocketAddress returns the address, as the net package takes it, of an endpoint of the
// form unix:///absolute/path or unix:///@name (an abstract socket). It is byte for byte
// the one that kube-apiserver dials for that endpoint (ParseEndpoint of
// k8s.io/kms/pkg/util: the URL's decoded path), since the kernel may resolve a cleaned
// path to another file. Compare addresses by CleanSocket. An error contains no part
// of the endpoint.
func SocketAddress(endpoint string) (string, error) {
	if !strings.HasPrefix(endpoint, "unix:///") {
		return "", fmt.Errorf("must be an absolute path after unix://, as in unix:///run/kms.sock")
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", fmt.Errorf("must be a path and nothing else, with other characters than letters, digits and -._~/@ " +
			"percent-encoded")
	}
	address := u.Path
	if strings.HasPrefix(address, "/@") {
		address = address[1:]
	}
	switch {
	case !isPrintable(address): // a NUL would end the path early, unix(7)
		return "", fmt.Errorf("must hold only characters that can be printed, also where they are percent-encoded")
	case CleanSocket(address) == "/" || address == "@":
		return "", fmt.Errorf("must name a socket")
	case len(address) > maxSocketPath:
		return "", fmt.Errorf("is a path of %d bytes, must be at most %d: a socket's address has no room for more "+
			"(sun_path, unix(7))", len(address), maxSocketPath)
	}
	return address, nil
}

// CleanSocket returns the form by which addresses of SocketAddress are compared, and in
// which a folder can be derived from them: without duplicate or trailing slashes and without
// dots. If a folder before a .. is a symbolic link, the kernel opens another file than
// the clean form names.
func CleanSocket(address string) string {
	if strings.HasPrefix(address, "@") {
		return address
	}
	return path.Clean(address)
}

// ParentFolderRule is the error text for a path that HasParentFolder rejects.
const ParentFolderRule = "must be written without .., which can lead elsewhere from another container"

// HasParentFolder reports whether an address of SocketAddress is a path with a .. in it.
func HasParentFolder(address string) bool {
	return !strings.HasPrefix(address, "@") && slices.Contains(strings.Split(address, "/"), "..")
}

func validateDestination(path *field.Path, d *Destination) field.ErrorList {
	var errs field.ErrorList
	switch {
	case d.Resource != "" && d.Object != nil:
		text := "must not be set together with " + path.Child("resource").String()
		errs = append(errs, field.Forbidden(path.Child("object"), text))
	case d.Resource == ResourceKMSHealths:
		errs = append(errs, field.Invalid(path.Child("resource"), d.Resource,
			fmt.Sprintf("has several objects: name one by %s", path.Child("object"))))
	case d.Object == nil:
		errs = append(errs, oneOf(path.Child("resource"), string(d.Resource), contract.ResourceNames()...)...)
	default:
		errs = append(errs, validateObject(path.Child("object"), d.Object)...)
	}
	errs = append(errs, word(path.Child("kubeconfig"), d.Kubeconfig, absolute, "an absolute path")...)
	if len(d.Servers) > MaxServers {
		errs = append(errs, field.TooMany(path.Child("servers"), len(d.Servers), MaxServers))
	}
	errs = append(errs, validateServers(path.Child("servers"), d.Servers)...)
	return append(errs, between(path.Child("writeTimeout"), d.WriteTimeout, MinWriteTimeout, MaxWriteTimeout)...)
}

// validateServers checks a list of servers, which must differ from one another and from those
// before.
func validateServers(path *field.Path, servers []Server, before ...string) (errs field.ErrorList) {
	for i, s := range servers {
		at := path.Index(i)
		errs = append(errs, validateServer(at, "url", s.URL, s.TLSServerName)...)
		if slices.Contains(before, s.URL) {
			errs = append(errs, field.Duplicate(at.Child("url"), short(s.URL)))
		}
		before = append(before, s.URL)
	}
	return errs
}

// validateServer checks the URL of an API server and the name of its certificate.
func validateServer(at *field.Path, name, server, tlsServerName string) field.ErrorList {
	errs := word(at.Child(name), server, serverRules, "a URL such as https://localhost:6443")
	return append(errs, word(at.Child("tlsServerName"), tlsServerName, validation.IsDNS1123Subdomain, "")...)
}

// ValidServer reports whether a URL can be one of a reporter's servers.
func ValidServer(server string) bool { return len(serverRules(server)) == 0 }

func serverRules(server string) []string {
	u, err := url.Parse(server)
	switch {
	case strings.Contains(server, "@"):
		return []string{"must not hold a user or password: credentials are the kubeconfig's"}
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || strings.ContainsAny(server, "?#"):
		return []string{"must be a URL such as https://localhost:6443"}
	}
	return nil
}

// validateObject checks what ends in a URL and in a body. Whether the API server has such a
// resource, and in namespaces or not, is not known here.
func validateObject(path *field.Path, o *ObjectReference) field.ErrorList {
	errs := word(path.Child("group"), o.Group, validation.IsDNS1123Subdomain, "")
	if o.Group == "" && o.Version != "" && o.Version != "v1" {
		errs = append(errs, field.Required(path.Child("group"),
			fmt.Sprintf("without it the core group is meant, which has no version %s", short(o.Version))))
	}
	errs = append(errs, word(path.Child("version"), o.Version, validation.IsDNS1035Label, "such as v1alpha1")...)
	errs = append(errs, word(path.Child("resource"), o.Resource, validation.IsDNS1035Label, "such as kmshealths")...)
	errs = append(errs, word(path.Child("kind"), o.Kind, kindRules, "such as KMSHealth")...)
	errs = append(errs, word(path.Child("namespace"), o.Namespace, validation.IsDNS1123Label, "")...)
	return append(errs, word(path.Child("name"), o.Name, validation.IsDNS1123Subdomain, "such as kube-apiserver")...)
}

func kindRules(kind string) []string {
	if strings.ToLower(kind[:1]) == kind[:1] {
		return []string{"must begin with a capital letter"}
	}
	return validation.IsDNS1035Label(strings.ToLower(kind))
}

// validateAddress checks where something is served. tls names the field that makes it HTTPS.
func validateAddress(at *field.Path, address string, isHTTPS bool, tls string) field.ErrorList {
	const rule = "an IP address and a port, as in 127.0.0.1:9180"
	return word(at, address, func(string) []string {
		switch parsed, err := netip.ParseAddrPort(address); {
		case err != nil:
			return []string{"must be " + rule}
		case !isHTTPS && !parsed.Addr().IsLoopback():
			return []string{"must be a loopback address without " + tls}
		}
		return nil
	}, rule)
}

func validateServing(path *field.Path, s *Serving) field.ErrorList {
	errs := validateAddress(path.Child("address"), s.Address, s.TLS != nil, "serving.tls")
	if s.TLS == nil {
		return errs
	}
	path = path.Child("tls")
	errs = append(errs, word(path.Child("certFile"), s.TLS.CertFile, absolute, "an absolute path")...)
	errs = append(errs, word(path.Child("keyFile"), s.TLS.KeyFile, absolute, "an absolute path")...)
	errs = append(errs, word(path.Child("clientCAFile"), s.TLS.ClientCAFile, absolute, "")...)
	errs = append(errs, oneOf(path.Child("minVersion"), s.TLS.MinVersion, TLS10, TLS11, TLS12, TLS13)...)
	if n := len(s.TLS.CipherSuites); n > maxElements {
		return append(errs, field.TooMany(path.Child("cipherSuites"), n, maxElements))
	}
	for i, name := range s.TLS.CipherSuites {
		if _, err := CipherSuite(name); err != nil {
			errs = append(errs, field.Invalid(path.Child("cipherSuites").Index(i), short(name), err.Error()))
		}
	}
	return errs
}

// Version returns crypto/tls's number of a valid TLS version.
func (v TLSVersion) Version() uint16 {
	return map[TLSVersion]uint16{TLS10: tls.VersionTLS10, TLS11: tls.VersionTLS11, TLS12: tls.VersionTLS12,
		TLS13: tls.VersionTLS13}[v]
}

// CipherSuite returns the id of a cipher suite that Go implements for TLS 1.0 to
// 1.2, by its IANA name.
func CipherSuite(name string) (uint16, error) {
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if suite.Name == name && suite.SupportedVersions[0] <= tls.VersionTLS12 {
			return suite.ID, nil
		}
	}
	return 0, errors.New("is not the IANA name of a cipher suite of TLS 1.0 to 1.2 that Go implements; those of 1.3 " +
		"cannot be chosen")
}

func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if !slices.Contains(allowed, value) {
		return field.ErrorList{field.NotSupported(path, short(string(value)), allowed)}
	}
	return nil
}

// word checks a text by rules that return what is wrong with it. Where it is required, why
// says what it is; an optional one may be empty.
func word(at *field.Path, value string, rules func(string) []string, why string) (errs field.ErrorList) {
	switch {
	case value == "" && why == "":
		return nil
	case value == "":
		return field.ErrorList{field.Required(at, why)}
	}
	if !isPrintable(value) {
		return field.ErrorList{field.Invalid(at, short(value), "must hold only characters that can be printed")}
	}
	for _, problem := range rules(value) {
		errs = append(errs, field.Invalid(at, short(value), problem))
	}
	return errs
}

// isPrintable reports whether a text controls no terminal and forges no line.
func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError })
}

func absolute(file string) []string {
	if path.IsAbs(file) {
		return nil
	}
	return []string{"must be an absolute path"}
}
