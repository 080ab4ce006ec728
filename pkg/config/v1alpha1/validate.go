package v1alpha1

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	// MaxTypedInterval is the longest interval of the typed form of reports, whose
	// readers assume an interval of 30s when they decide that an entry is stale.
	MaxTypedInterval = 30 * time.Second
	// MaxServers is enough for the node's own API server and two addresses of the others.
	MaxServers = 4
	// maxSocketPath is sizeof(sockaddr_un.sun_path) less its final NUL, unix(7).
	maxSocketPath = 107
)

var keyIDPattern = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// ValidKeyID reports whether a string can be a plugin's keyID.
func ValidKeyID(word string) bool { return keyIDPattern.MatchString(word) }

const keyIDRule = "must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit"

func validate(c *ReporterConfiguration) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateProbe(field.NewPath("probe"), &c.Probe)...)
	errs = append(errs, validatePlugins(field.NewPath("plugins"), c.Plugins, c.Probe.Interval.Duration)...)
	if c.Destination != nil {
		errs = append(errs, validateDestination(field.NewPath("destination"), c.Destination)...)
		errs = append(errs, validateTypedInterval(c.Destination.Format, c.Probe.Interval.Duration)...)
	}
	if c.Serving != nil {
		errs = append(errs, validateServing(field.NewPath("serving"), c.Serving)...)
	}
	return errs
}

func validateProbe(path *field.Path, p *Probe) field.ErrorList {
	errs := between(path.Child("interval"), p.Interval.Duration, MinInterval, MaxInterval)
	if every := p.Checks.RoundTrip.Interval.Duration; every != 0 && (every < MinRoundTrip || every > MaxRoundTrip) {
		errs = append(errs, field.Invalid(path.Child("checks", "roundTrip", "interval"), every.String(), fmt.Sprintf("must be from %s to %s, or 0s for off", MinRoundTrip, MaxRoundTrip)))
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
		switch {
		case p.KeyID == "":
			errs = append(errs, field.Required(at.Child("keyID"), fmt.Sprintf("cannot be taken from the endpoint %q, which does not end in kms-{keyID}.sock", short(p.Endpoint))))
		case !ValidKeyID(p.KeyID):
			errs = append(errs, field.Invalid(at.Child("keyID"), short(p.KeyID), keyIDRule))
		case keyIDs[p.KeyID]:
			errs = append(errs, field.Duplicate(at.Child("keyID"), p.KeyID))
		}
		keyIDs[p.KeyID] = true

		socket, why := SocketAddress(p.Endpoint)
		switch {
		case p.Endpoint == "":
			errs = append(errs, field.Required(at.Child("endpoint"), "the plugin's socket, as unix:///absolute/path or unix:///@name"))
		case why != nil:
			errs = append(errs, field.Invalid(at.Child("endpoint"), short(p.Endpoint), why.Error()))
		case endpoints[CleanSocket(socket)]:
			errs = append(errs, field.Duplicate(at.Child("endpoint"), short(p.Endpoint)))
		default:
			endpoints[CleanSocket(socket)] = true
		}

		if p.Role == "" {
			errs = append(errs, field.Required(at.Child("role"), "Write where the API server encrypts with this plugin, Read where it only decrypts"))
		} else {
			errs = append(errs, oneOf(at.Child("role"), p.Role, RoleWrite, RoleRead)...)
		}
		if timeout := at.Child("timeout"); interval >= MinInterval && p.Timeout.Duration > interval {
			errs = append(errs, field.Invalid(timeout, p.Timeout.Duration.String(), fmt.Sprintf("must be at most probe.interval, %s", interval)))
		} else {
			errs = append(errs, between(timeout, p.Timeout.Duration, MinTimeout, MaxInterval)...)
		}
	}
	return errs
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
		return "", fmt.Errorf("must be a path and nothing else, with other characters than letters, digits and -._~/@ percent-encoded")
	}
	address := u.Path
	if strings.HasPrefix(address, "/@") {
		address = address[1:]
	}
	switch {
	case printable(address) != address: // a NUL would end the path early, unix(7)
		return "", fmt.Errorf("must hold only characters that can be printed, also where they are percent-encoded")
	case CleanSocket(address) == "/" || address == "@":
		return "", fmt.Errorf("must name a socket")
	case len(address) > maxSocketPath:
		return "", fmt.Errorf("is a path of %d bytes, must be at most %d: a socket's address has no room for more (sun_path, unix(7))", len(address), maxSocketPath)
	}
	return address, nil
}

// CleanSocket returns the form by which addresses of SocketAddress are compared, and in
// which a folder can be derived from them: without doubled or trailing slashes and without
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
	errs := oneOf(path.Child("format"), d.Format, FormatCondition, FormatHealthReports, FormatBoth)
	switch {
	case d.Resource != "" && d.Object != nil:
		errs = append(errs, field.Forbidden(path.Child("object"), fmt.Sprintf("must be left out where %s is given", path.Child("resource"))))
	case d.Resource == ResourceKMSHealths:
		errs = append(errs, field.Invalid(path.Child("resource"), d.Resource, fmt.Sprintf("has several objects: name one by %s", path.Child("object"))))
	case d.Object == nil && d.Resource == "":
		errs = append(errs, field.Required(path.Child("resource"), "one of kubeapiservers, openshiftapiservers, authentications; or an object, by "+path.Child("object").String()))
	case d.Object == nil:
		errs = append(errs, oneOf(path.Child("resource"), d.Resource, openShiftResources...)...)
	default:
		errs = append(errs, validateObject(path.Child("object"), d.Object)...)
		if d.Format == FormatHealthReports || d.Format == FormatBoth {
			errs = append(errs, field.Invalid(path.Child("format"), d.Format, fmt.Sprintf("must be Condition with %s: healthReports is a field of OpenShift's resources", path.Child("object"))))
		}
	}
	errs = append(errs, absolute(path.Child("kubeconfig"), d.Kubeconfig)...)
	if len(d.Servers) > MaxServers {
		errs = append(errs, field.TooMany(path.Child("servers"), len(d.Servers), MaxServers))
	}
	errs = append(errs, validateServers(path.Child("servers"), d.Servers)...)
	return append(errs, between(path.Child("writeTimeout"), d.WriteTimeout.Duration, MinWriteTimeout, MaxWriteTimeout)...)
}

// validateServers checks a list of servers, of which none may be another one, or one of
// those before.
func validateServers(path *field.Path, servers []Server, before ...string) field.ErrorList {
	var errs field.ErrorList
	urls := map[string]bool{}
	for _, url := range before {
		urls[canonicalServer(url)] = true
	}
	for i, s := range servers {
		at := path.Index(i)
		errs = append(errs, validateServer(at, "url", s.URL, s.TLSServerName)...)
		one := canonicalServer(s.URL)
		if urls[one] {
			errs = append(errs, field.Duplicate(at.Child("url"), shownServer(s.URL)))
		}
		urls[one] = true
	}
	return errs
}

// ValidServer reports whether a URL can be one of a reporter's servers.
func ValidServer(url string) bool { return len(validateServer(field.NewPath(""), "", url, "")) == 0 }

// SameServer reports whether two URLs are of one server.
func SameServer(a, b string) bool { return canonicalServer(a) == canonicalServer(b) }

// canonicalServer returns the form by which URLs of API servers are compared.
func canonicalServer(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	port := strings.TrimLeft(u.Port(), "0")
	if port == "" {
		port = "443"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port) + path.Clean("/"+u.Path)
}

// shownServer returns the part of an API server's URL that is safe to show: a URL that
// cannot be parsed may contain a password anywhere, and an encoded one may hide it.
func shownServer(server string) string {
	if strings.ContainsAny(server, "@%?#") {
		return notShown
	}
	return short(server)
}

// validateServer checks the URL of an API server and the name of its certificate. Errors
// show no part of the URL that could be a password.
func validateServer(at *field.Path, name, server, tlsServerName string) field.ErrorList {
	var errs field.ErrorList
	u, err := url.Parse(server)
	switch {
	case server == "":
		errs = append(errs, field.Required(at.Child(name), "a URL such as https://localhost:6443"))
	case strings.Contains(server, "@"):
		errs = append(errs, field.Invalid(at.Child(name), notShown, "must not hold a user or password: credentials are the kubeconfig's"))
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || strings.ContainsAny(server, "?#"):
		errs = append(errs, field.Invalid(at.Child(name), shownServer(server), "must be a URL such as https://localhost:6443"))
	}
	if tlsServerName != "" {
		for _, why := range validation.IsDNS1123Subdomain(tlsServerName) {
			errs = append(errs, field.Invalid(at.Child("tlsServerName"), short(tlsServerName), why))
		}
	}
	return errs
}

func validateTypedInterval(f Format, interval time.Duration) field.ErrorList {
	if f != FormatHealthReports && f != FormatBoth || interval <= MaxTypedInterval || interval > MaxInterval {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("probe", "interval"), interval.String(), fmt.Sprintf("must be at most %s with format %s: readers of the typed form treat an older entry as stale", MaxTypedInterval, f))}
}

// openShiftResources have one object each.
var openShiftResources = []Resource{ResourceKubeAPIServers, ResourceOpenShiftAPIServers, ResourceAuthentications}

// validateObject checks what ends in a URL and in a body. Whether the API server has such a
// resource, and in namespaces or not, is not known here.
func validateObject(path *field.Path, o *ObjectReference) field.ErrorList {
	var errs field.ErrorList
	check := func(name, value, example string, rule func(string) []string) {
		if value == "" {
			errs = append(errs, field.Required(path.Child(name), "such as "+example))
			return
		}
		for _, why := range rule(value) {
			errs = append(errs, field.Invalid(path.Child(name), short(value), why))
		}
	}
	if o.Group != "" {
		check("group", o.Group, "", validation.IsDNS1123Subdomain)
	} else if o.Version != "" && o.Version != "v1" {
		errs = append(errs, field.Required(path.Child("group"), fmt.Sprintf("the core group, which a group that is left out means, has no version %s", short(o.Version))))
	}
	check("version", o.Version, "v1alpha1", validation.IsDNS1035Label)
	check("resource", o.Resource, "kmshealths", validation.IsDNS1035Label)
	check("kind", o.Kind, "KMSHealth", func(kind string) []string {
		if strings.ToLower(kind[:1]) == kind[:1] {
			return []string{"must begin with a capital letter"}
		}
		return validation.IsDNS1035Label(strings.ToLower(kind))
	})
	if o.Namespace != "" {
		check("namespace", o.Namespace, "", validation.IsDNS1123Label)
	}
	check("name", o.Name, "kube-apiserver", validation.IsDNS1123Subdomain)
	return errs
}

func validateServing(path *field.Path, s *Serving) field.ErrorList {
	var errs field.ErrorList
	switch address, err := netip.ParseAddrPort(s.Address); {
	case s.Address == "":
		errs = append(errs, field.Required(path.Child("address"), "an IP address and a port, as in 127.0.0.1:9180"))
	case err != nil:
		errs = append(errs, field.Invalid(path.Child("address"), short(s.Address), "must be an IP address and a port, as in 127.0.0.1:9180"))
	case s.TLS == nil && !address.Addr().IsLoopback():
		errs = append(errs, field.Invalid(path.Child("address"), s.Address, "must be a loopback address where serving.tls is left out"))
	}
	if s.TLS == nil {
		return errs
	}
	path = path.Child("tls")
	errs = append(errs, absolute(path.Child("certFile"), s.TLS.CertFile)...)
	errs = append(errs, absolute(path.Child("keyFile"), s.TLS.KeyFile)...)
	if s.TLS.ClientCAFile != "" {
		errs = append(errs, absolute(path.Child("clientCAFile"), s.TLS.ClientCAFile)...)
	}
	errs = append(errs, oneOf(path.Child("minVersion"), s.TLS.MinVersion, TLS10, TLS11, TLS12, TLS13)...)
	for i, name := range s.TLS.CipherSuites {
		if _, err := CipherSuite(name); err != nil {
			errs = append(errs, field.Invalid(path.Child("cipherSuites").Index(i), short(name), err.Error()))
		}
	}
	if s.TLS.MinVersion == TLS13 && len(s.TLS.CipherSuites) > 0 {
		errs = append(errs, field.Invalid(path.Child("cipherSuites"), short(s.TLS.CipherSuites), "must be left out with minVersion VersionTLS13, whose suites cannot be chosen"))
	}
	return errs
}

// Version returns crypto/tls's number of a valid TLS version.
func (v TLSVersion) Version() uint16 {
	return map[TLSVersion]uint16{TLS10: tls.VersionTLS10, TLS11: tls.VersionTLS11, TLS12: tls.VersionTLS12, TLS13: tls.VersionTLS13}[v]
}

// CipherSuite returns the id of a cipher suite that Go implements for TLS 1.0 to
// 1.2, by its IANA name.
func CipherSuite(name string) (uint16, error) {
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if suite.Name != name {
			continue
		}
		if !slices.ContainsFunc(suite.SupportedVersions, func(v uint16) bool { return v <= tls.VersionTLS12 }) {
			return 0, fmt.Errorf("is a suite of TLS 1.3, whose suites cannot be chosen")
		}
		return suite.ID, nil
	}
	return 0, fmt.Errorf("is not the IANA name of a cipher suite that Go implements")
}

func between(path *field.Path, d, low, high time.Duration) field.ErrorList {
	if d < low || d > high {
		return field.ErrorList{field.Invalid(path, d.String(), fmt.Sprintf("must be from %s to %s", low, high))}
	}
	return nil
}

func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if !slices.Contains(allowed, value) {
		return field.ErrorList{field.NotSupported(path, value, allowed)}
	}
	return nil
}

func absolute(at *field.Path, file string) field.ErrorList {
	if file == "" {
		return field.ErrorList{field.Required(at, "an absolute path")}
	}
	if !path.IsAbs(file) {
		return field.ErrorList{field.Invalid(at, short(file), "must be an absolute path")}
	}
	return nil
}
