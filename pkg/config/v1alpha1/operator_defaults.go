package v1alpha1

// Defaults of the operator's file.
const (
	DefaultEncryptionConfig = "encryption-config"
	// DefaultLocalServer is reachable during a network outage, and where the cluster's
	// DNS names do not resolve.
	DefaultLocalServer   = "https://localhost:6443"
	DefaultClusterServer = "https://kubernetes.default.svc"
)

func setOperatorDefaults(c *OperatorConfiguration, set presence) {
	orElse(&c.ManagementState, Managed, set.has("managementState"))
	orElse(&c.Format, FormatCondition, set.has("format"))
	orElse(&c.Rollout, RolloutNeeded, set.has("rollout"))
	if !set.has("rollups") {
		c.Rollups = []Rollup{RollupDegraded}
	}
	setProbeDefaults(&c.Probe, set)
	for i := range c.Targets {
		t := &c.Targets[i]
		has := func(steps ...any) bool { return set.has(append([]any{"targets", i}, steps...)...) }
		if t.Plugins == nil {
			orElse(&t.EncryptionConfig.Secret, DefaultEncryptionConfig, has("encryptionConfig", "secret"))
			orElse(&t.EncryptionConfig.Key, DefaultEncryptionConfig, has("encryptionConfig", "key"))
		}
		orElse(&t.Delivery, DeliveryAuto, has("delivery"))
		orElse(&t.ConfigSource, ConfigSourceAuto, has("configSource"))
		orElse(&t.Credentials, defaultCredentials(t.Delivery), has("credentials"))
		if t.APIServer.Server == "" {
			t.APIServer.Server = DefaultLocalServer
			if t.Delivery.InOwnersPods() {
				t.APIServer.Server = DefaultClusterServer
			}
		}
		setPluginDefaults(t.Plugins, c.Probe, func(j int) bool { return has("plugins", j, "timeout") })
	}
}

func orElse[T ~string](field *T, value T, there bool) {
	if !there {
		*field = value
	}
}

func defaultCredentials(d Delivery) Credentials {
	if d.InOwnersPods() {
		return CredentialsMintedToken
	}
	return CredentialsBoundToken
}

// InOwnersPods reports whether the reporter runs inside the API server's own pods,
// whose ServiceAccount is not the reporter's.
func (d Delivery) InOwnersPods() bool { return d == DeliveryDeployment || d == DeliveryExternal }
