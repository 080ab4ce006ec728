package v1alpha1

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kms/pkg/util"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Bounds of a valid configuration.
const (
	MinTimeout = 10 * time.Millisecond // of a call
	// MaxPlugins keeps a message with one entry per plugin within its bound. An API server has one plugin, and two
	// during a migration.
	MaxPlugins = 16
	// MaxServers is enough for the node's own API server and two addresses of the others.
	MaxServers                 = 4
	minUnchanged, maxUnchanged = time.Second, 10 * time.Minute // the bounds of unchangedEvery
)

// ValidKeyID reports whether a string can be a plugin's keyID.
func ValidKeyID(id string) bool { return contract.IsWord(id, "-_.") }

// keyIDRules are also those of a request.
func keyIDRules(id string) []string {
	return unless(ValidKeyID(id),
		"must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit")
}

func validate(c *ReporterConfiguration) field.ErrorList {
	errs := slices.Concat(validateProbe(field.NewPath("probe"), &c.Probe),
		validatePlugins(field.NewPath("plugins"), c.Plugins, c.Probe.Interval.Duration))
	if c.Destination != nil {
		errs = append(errs, validateDestination(field.NewPath("destination"), c.Destination)...)
	}
	if c.Serving != nil {
		errs = append(errs, validateServing(field.NewPath("serving"), c.Serving)...)
	}
	return errs
}

func validateProbe(path *field.Path, p *Probe) field.ErrorList {
	trip, at := p.Checks.RoundTrip, path.Child("checks", "roundTrip")
	errs := slices.Concat(between(path.Child("interval"), p.Interval, contract.MinInterval, contract.MaxInterval),
		word(at.Child("requested"), trip.Requested, keyIDRules, ""))
	if trip.Interval != off {
		errs = append(errs, between(at.Child("interval"), trip.Interval, time.Minute, 24*time.Hour)...)
	}
	return errs
}

func validatePlugins(path *field.Path, plugins []Plugin, interval time.Duration) (errs field.ErrorList) {
	switch {
	case plugins == nil:
		return field.ErrorList{field.Required(path, "use an empty list, [], to probe nothing")}
	case len(plugins) > MaxPlugins:
		return field.ErrorList{field.TooMany(path, len(plugins), MaxPlugins)}
	}
	keyIDs, endpoints := seen{}, seen{}
	for i, p := range plugins {
		at := path.Index(i)
		errs = slices.Concat(errs, validatePlugin(at, &p, interval),
			keyIDs.again(at.Child("keyID"), p.KeyID, p.KeyID),
			endpoints.again(at.Child("endpoint"), Plain(p.Endpoint), p.Endpoint))
	}
	return errs
}

func validatePlugin(at *field.Path, p *Plugin, interval time.Duration) field.ErrorList {
	if interval < contract.MinInterval { // already reported as an error of the interval
		interval = contract.MaxInterval
	}
	timeout := between(at.Child("timeout"), p.Timeout, MinTimeout, interval)
	for _, err := range timeout {
		err.Detail += ", which is probe.interval"
	}
	_, err := SocketAddress(p.Endpoint)
	isSocket := func(string) []string { return unless(err == nil, fmt.Sprint(err)) }
	return slices.Concat(timeout,
		word(at.Child("keyID"), p.KeyID, keyIDRules,
			fmt.Sprintf("cannot be taken from the endpoint %q, which does not end in kms-{keyID}.sock", short(p.Endpoint))),
		word(at.Child("endpoint"), p.Endpoint, isSocket, "the plugin's socket, as unix:///absolute/path or unix:///@name"),
		oneOf(at.Child("role"), p.Role, RoleWrite, RoleRead))
}

// SocketAddress returns the address, as the net package takes it, of an endpoint that kube-apiserver
// accepts: its path, which is absolute, or @name (an abstract socket). It is byte for byte the one that
// kube-apiserver dials for that endpoint. What cannot be dialled, or not from another container, is an
// error. Compare addresses by CleanSocket. An error contains no part of the endpoint.
func SocketAddress(endpoint string) (string, error) {
	switch address, err := util.ParseEndpoint(endpoint); {
	case err != nil || address == "":
		return "", errors.New("must be an absolute path after unix://, as in unix:///run/kms.sock")
	case contract.Clean(address) != address: // a NUL would end the path early, unix(7)
		return "", errors.New("must hold only characters that can be printed, also where they are percent-encoded")
	case CleanSocket(address) == "/" || address == "@":
		return "", errors.New("must name a socket")
	case address[0] == '/' && slices.Contains(strings.Split(address, "/"), ".."):
		return "", errors.New("must be written without .., which can lead elsewhere from another container")
	case len(address) > contract.MaxSocket:
		return "", fmt.Errorf("is a path of %d bytes, must be at most %d: a socket's address has no room for more "+
			"(sun_path, unix(7))", len(address), contract.MaxSocket)
	default:
		return address, nil
	}
}

// CleanSocket returns the form by which addresses of SocketAddress are compared, and in which a folder can be derived
// from them: without duplicate or trailing slashes and without dots.
func CleanSocket(address string) string {
	if strings.HasPrefix(address, "@") {
		return address
	}
	return path.Clean(address)
}

// SocketFolder returns the folder of the socket of a valid endpoint; empty if the socket is abstract.
func SocketFolder(endpoint string) string {
	address, err := SocketAddress(endpoint)
	if err != nil || strings.HasPrefix(address, "@") {
		return ""
	}
	return path.Dir(CleanSocket(address))
}

// sharedFolders hold more than sockets: a reporter's pod that mounts one would see secrets, as an API server's keys.
var sharedFolders = []string{"/", "/etc", "/etc/kubernetes", "/etc/kubernetes/pki", "/run", "/srv/kubernetes",
	"/srv/kubernetes/kube-apiserver", "/tmp", "/var", "/var/lib", "/var/run"}

// CheckSocketFolder returns why a reporter's own pod does not mount a folder of sockets; nil if it does.
func CheckSocketFolder(folder string) error {
	if slices.Contains(sharedFolders, folder) {
		return fmt.Errorf("the socket is in %s, which holds much else, and which no reporter's pod mounts: put it into a "+
			"folder of its own, as /var/run/kmsplugin", folder)
	}
	return nil
}

// Endpoint returns the plain spelling of the endpoint of an address: unix:// and a path.
func Endpoint(address string) string {
	if strings.HasPrefix(address, "@") || strings.HasPrefix(address, "/@") { // /@ would be abstract, //@ is a file
		address = "/" + address
	}
	return (&url.URL{Scheme: "unix", Path: address}).String()
}

func validateDestination(path *field.Path, d *Destination) field.ErrorList {
	errs := validateResource(path.Child("resource"), d.Resource)
	switch name := path.Child("name"); {
	case d.Resource == ResourceKMSHealths:
		errs = append(errs, word(name, d.Name, validation.IsDNS1123Subdomain, "the API server's, such as kube-apiserver")...)
	case d.Name != "":
		errs = append(errs, field.Forbidden(name, "must be set with resource kmshealths alone"))
	}
	return slices.Concat(errs,
		word(path.Child("kubeconfig"), d.Kubeconfig, absolute, "an absolute path"),
		validateServers(path.Child("servers"), d.Servers, MaxServers),
		between(path.Child("unchangedEvery"), d.UnchangedEvery, minUnchanged, maxUnchanged),
		between(path.Child("writeTimeout"), d.WriteTimeout, 100*time.Millisecond, time.Minute))
}

func validateServers(path *field.Path, servers []Server, most int) field.ErrorList {
	errs := when(len(servers) > most, field.TooMany(path, len(servers), most))
	for i, s := range servers {
		errs = append(errs, validateServer(path.Index(i), "url", s.URL, s.TLSServerName)...)
	}
	return errs
}

// validateServer checks the URL of an API server and the name of its certificate.
func validateServer(at *field.Path, name, server, tlsServerName string) field.ErrorList {
	const example = "a URL such as https://localhost:6443"
	rules := func(string) []string {
		return unless(ValidServer(server), "must be "+example+", without user, password, query and fragment")
	}
	return slices.Concat(word(at.Child(name), server, rules, example),
		word(at.Child("tlsServerName"), tlsServerName, validation.IsDNS1123Subdomain, ""))
}

// ValidServer reports whether a URL can be one of a reporter's servers.
func ValidServer(server string) bool {
	u, err := url.Parse(server)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && !strings.ContainsAny(server, "@?#")
}

func validateResource(at *field.Path, resource Resource) field.ErrorList {
	return oneOf(at, string(resource), append(contract.ResourceNames(), contract.KMSHealthsPlural)...)
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
	if s.TLS != nil {
		path = path.Child("tls")
		errs = slices.Concat(errs,
			word(path.Child("certFile"), s.TLS.CertFile, absolute, "an absolute path"),
			word(path.Child("keyFile"), s.TLS.KeyFile, absolute, "an absolute path"),
			word(path.Child("clientCAFile"), s.TLS.ClientCAFile, absolute, ""),
			validateTLS(path, s.TLS.MinVersion, s.TLS.CipherSuites))
	}
	return errs
}

func validateTLS(path *field.Path, version TLSVersion, suites []string) field.ErrorList {
	errs := oneOf(path.Child("minVersion"), version, TLS10, TLS11, TLS12, TLS13)
	for i, name := range suites {
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

// CipherSuite returns the id of a cipher suite that Go implements for TLS 1.0 to 1.2, by its IANA name.
func CipherSuite(name string) (uint16, error) {
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if suite.Name == name && suite.SupportedVersions[0] <= tls.VersionTLS12 {
			return suite.ID, nil
		}
	}
	return 0, errors.New("is not the IANA name of a cipher suite of TLS 1.0 to 1.2 that Go implements")
}

func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("one of %v", allowed))}
	case !slices.Contains(allowed, value):
		return field.ErrorList{field.NotSupported(path, short(string(value)), allowed)}
	}
	return nil
}

// between checks that a duration is not set, or valid and within bounds. A value of 0s is set.
func between(path *field.Path, d Duration, low, high time.Duration) field.ErrorList {
	if d == (Duration{}) || d.text == "" && d.Duration >= low && d.Duration <= high {
		return nil
	}
	return field.ErrorList{field.Invalid(path, cmp.Or(short(d.text), d.String()),
		fmt.Sprintf("must be a duration with its unit, from %s to %s", low, high))}
}

// word checks a text by rules that return what is wrong with it. why describes a required text; if why is empty, the
// text is optional.
func word(at *field.Path, value string, rules func(string) []string, why string) (errs field.ErrorList) {
	switch {
	case value == "" && why == "":
		return nil
	case value == "":
		return field.ErrorList{field.Required(at, why)}
	case contract.Clean(value) != value:
		return field.ErrorList{field.Invalid(at, short(value), "must hold only characters that can be printed")}
	}
	for _, problem := range rules(value) {
		errs = append(errs, field.Invalid(at, short(value), problem))
	}
	return errs
}

func absolute(file string) []string { return unless(path.IsAbs(file), "must be an absolute path") }

// unless returns the problem as a rule does, or nil if the value is valid.
func unless(valid bool, problem string) []string {
	if valid {
		return nil
	}
	return []string{problem}
}

// when returns an error if it applies.
func when(applies bool, err *field.Error) field.ErrorList {
	if applies {
		return field.ErrorList{err}
	}
	return nil
}

// seen are the values of a field that must differ.
type seen map[string]bool

// again returns an error, with the value as it is in the file, if a value that is set was seen before.
func (s seen) again(at *field.Path, value, written string) field.ErrorList {
	before := s[value]
	s[value] = value != ""
	return when(before, field.Duplicate(at, short(written)))
}
