//! Services and upstreams: how to reach what a route leads to.

use super::compile::{Compilation, Compiler};
use super::last::{Identities, same};
use super::upstreams::{Balanced, Upstreams, endpoint};
use super::{CompiledService, Destination, ServiceTls};
use foldhash::fast::RandomState;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_model::entity::{self, EntityKind, Protocol};
use weir_model::{Document, Uuid};
use weir_net::tls::{self, Certificates, CertifiedKey, Verify};
use weir_plugin::Service;
use weir_upstream::endpoint::{EndpointIds, UpstreamProtocol};
use weir_upstream::limit::{LimitPolicy, UpstreamLimits};
use weir_upstream::retry_budget::RetryBudgets;

impl Compilation<'_> {
    /// Those that can be reached, with what is unchanged of the last.
    pub(super) fn services(&self, identities: &Arc<Identities>, last: Option<&Services>) -> Services {
        let retained = (self.compiler.retained.clone(), self.compiler.workers);
        let upstreams = Upstreams::new(self.document, retained);
        let mut services = Services::new(self.document, identities.clone(), upstreams);
        let last = last.filter(|last| last.trust_as(&services));
        let upstreams = services.balanced.clone();
        for service in &self.document.services {
            let balanced = upstreams.named(&service.host).cloned();
            let known = last.and_then(|last| last.take(service, balanced.as_ref()));
            let compiled = match known {
                Some(known) => Some(known),
                None => {
                    let place = (&*upstreams, balanced.as_ref());
                    self.service(service, place, &identities.certificates).map(Arc::new)
                }
            };
            if let Some(compiled) = compiled {
                services.by_id.insert(service.id, (compiled, balanced));
            }
        }
        services
    }

    fn service(
        &self,
        service: &Arc<entity::Service>,
        (upstreams, balanced): (&Upstreams, Option<&Balanced>),
        certificates: &Certificates,
    ) -> Option<CompiledService> {
        let tls = self.service_tls(service, balanced, certificates)?;
        let destination = match balanced {
            Some(balanced) => {
                self.check_targets(balanced);
                Destination::Upstream(upstreams.balancer(service, balanced, tls.as_ref()))
            }
            None => {
                let (ids, place) =
                    (self.compiler.retained.get::<EndpointIds>(), (&*service.host, service.port));
                Destination::Host(endpoint(&*ids, service, place, None, tls.as_ref()))
            }
        };
        let name = match balanced {
            Some(balanced) => balanced.upstream.name.clone(),
            None => format!("{}:{}", service.host, service.port),
        };
        let budgets = self.compiler.retained.get::<RetryBudgets>();
        let tags = balanced.map_or(&service.tags, |balanced| &balanced.upstream.tags);
        let retry_budget = budgets.of(&name, self.compiler.workers, tags);
        let limit = match &destination {
            Destination::Upstream(balancer) => balancer.limit.clone(),
            Destination::Host(_) => LimitPolicy::of(&service.tags).map(|policy| {
                let limits = self.compiler.retained.get::<UpstreamLimits>();
                limits.of(
                    &format!("{name} of {}", service.name.as_deref().unwrap_or(&service.id.to_string())),
                    policy.of_one_target(),
                )
            }),
        };
        let (entity, view) = (service.clone(), Arc::new(Service::new(service.clone())));
        Some(CompiledService { entity, view, destination, limit, retry_budget, tls })
    }

    fn check_targets(&self, balanced: &Balanced) {
        for target in balanced.targets.iter().filter(|target| target.host_and_port().is_none()) {
            let name = Some(target.target.clone());
            self.fail_of(EntityKind::Targets, target.id, &name, "write it as host:port");
        }
    }

    /// How the service's connections are secured, or would be if a plugin had them secured; `None` where that cannot be
    /// compiled.
    fn service_tls(
        &self,
        service: &entity::Service,
        balanced: Option<&Balanced>,
        certificates: &Certificates,
    ) -> Option<Option<ServiceTls>> {
        let protocol = match service.protocol {
            Protocol::Http | Protocol::Https => Protocol::Https,
            Protocol::Grpc | Protocol::Grpcs => Protocol::Grpcs,
            Protocol::Tls => Protocol::Tls,
            _ => return Some(None),
        };
        let spoken = UpstreamProtocol::of(service, protocol);
        let default = &self.compiler.upstream_verification;
        let by_default = if protocol == Protocol::Tls { default.of_sessions } else { default.of_requests };
        let verify = service.tls_verify.unwrap_or(by_default).then(|| self.verification(service));
        // As Kong has it: the service's own, then that of the upstream it is balanced over, then that of the settings.
        let of_upstream = balanced.and_then(|balanced| balanced.upstream.client_certificate);
        let presented = service.client_certificate.or(of_upstream);
        let identity = self.identity(presented, certificates);
        let profile = self.tls_profile(service, spoken, presented);
        let configs = self.compiler.retained.get::<ClientConfigs>();
        let make = || Ok(spoken.offered_by(tls::client_config(verify, identity)?));
        match configs.get(&profile, make) {
            Ok(config) => Some(Some(ServiceTls { config, profile: profile.into() })),
            Err(_) if service.protocol != protocol => Some(None),
            Err(error) => {
                self.fail_of(EntityKind::Services, service.id, &service.name, error);
                None
            }
        }
    }

    /// What is presented where a certificate is named, or none.
    pub(super) fn identity(
        &self,
        named: Option<Uuid>,
        certificates: &Certificates,
    ) -> Option<Arc<CertifiedKey>> {
        match named {
            Some(id) => certificates.get(id),
            None => self.compiler.client_certificate.clone(),
        }
    }

    /// What to check the upstream's certificate against: the service's certificates, else those of the settings.
    fn verification(&self, service: &entity::Service) -> Verify {
        let pems = self.trusted(service);
        let mut roots = Vec::new();
        for pem in pems {
            match tls::ca_certificates(pem) {
                Ok(certificates) => roots.extend(certificates),
                Err(error) => self.fail_of(EntityKind::Services, service.id, &service.name, error),
            }
        }
        let Compiler { upstream_verification: default, trusted_certificates, .. } = self.compiler;
        if roots.is_empty() {
            roots = default.trusted_certificates.as_ref().unwrap_or(trusted_certificates).clone();
        }
        Verify { roots, depth: service.tls_verify_depth.or(default.depth) }
    }

    fn trusted(&self, service: &entity::Service) -> Vec<&str> {
        let ids = service.ca_certificates.as_deref().unwrap_or_default();
        let named = self.document.ca_certificates.iter().filter(|ca| ids.contains(&ca.id));
        named.map(|ca| ca.cert.as_str()).collect()
    }

    /// Equal for services whose connections may be shared; changes with the certificates behind the ids.
    fn tls_profile(
        &self,
        service: &entity::Service,
        spoken: UpstreamProtocol,
        client_certificate: Option<Uuid>,
    ) -> String {
        let mut hasher = SipHasher13::new();
        (service.tls_verify, service.tls_verify_depth, self.trusted(service)).hash(&mut hasher);
        spoken.hash(&mut hasher);
        if let Some(id) = client_certificate {
            let own = self.document.certificates.iter().find(|c| c.id == id);
            own.map(|c| (&c.cert, &c.key, &c.cert_alt, &c.key_alt)).hash(&mut hasher);
        }
        format!("{:032x}", hasher.finish128().as_u128())
    }
}

/// TLS configurations towards upstreams that are in use, so that sessions are resumed over reloads.
#[derive(Default)]
struct ClientConfigs(Mutex<HashMap<String, Weak<rustls::ClientConfig>>>);

impl ClientConfigs {
    fn get(
        &self,
        profile: &str,
        make: impl FnOnce() -> Result<Arc<rustls::ClientConfig>, tls::TlsError>,
    ) -> Result<Arc<rustls::ClientConfig>, tls::TlsError> {
        let mut configs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = configs.get(profile).and_then(Weak::upgrade) {
            return Ok(config);
        }
        let config = make()?;
        configs.retain(|_, config| config.strong_count() > 0);
        configs.insert(profile.to_owned(), Arc::downgrade(&config));
        Ok(config)
    }
}

/// Services as they were compiled, and what they were compiled from.
pub(super) struct Services {
    by_id: HashMap<Uuid, (Arc<CompiledService>, Option<Balanced>), RandomState>,
    pub(super) disabled: HashSet<Uuid>,
    services: Vec<Arc<entity::Service>>,
    upstreams: Vec<Arc<entity::Upstream>>,
    targets: Vec<Arc<entity::Target>>,
    authorities: Vec<Arc<entity::CaCertificate>>,
    identities: Arc<Identities>,
    /// What they may be balanced over.
    pub(super) balanced: Arc<Upstreams>,
}

impl Services {
    /// None yet of the document.
    fn new(document: &Document, identities: Arc<Identities>, balanced: Upstreams) -> Services {
        let disabled = document.services.iter().filter(|service| !service.enabled);
        Services {
            by_id: HashMap::default(),
            disabled: disabled.map(|service| service.id).collect(),
            services: document.services.clone(),
            upstreams: document.upstreams.clone(),
            targets: document.targets.clone(),
            authorities: document.ca_certificates.clone(),
            identities,
            balanced: Arc::new(balanced),
        }
    }

    pub(super) fn get(&self, id: Uuid) -> Option<&Arc<CompiledService>> {
        self.by_id.get(&id).map(|(compiled, _)| compiled)
    }

    /// Whether they are those of this document.
    pub(super) fn are_of(&self, document: &Document, identities: &Arc<Identities>) -> bool {
        same(&self.services, &document.services)
            && same(&self.upstreams, &document.upstreams)
            && same(&self.targets, &document.targets)
            && same(&self.authorities, &document.ca_certificates)
            && self.identities.have_the_certificates_of(identities)
    }

    /// Whether what secures their connections is the same.
    fn trust_as(&self, other: &Services) -> bool {
        same(&self.authorities, &other.authorities)
            && self.identities.have_the_certificates_of(&other.identities)
    }

    /// The compiled service, if neither it nor what it is balanced over has changed.
    fn take(
        &self,
        service: &Arc<entity::Service>,
        balanced: Option<&Balanced>,
    ) -> Option<Arc<CompiledService>> {
        let (known, known_balanced) = self.by_id.get(&service.id)?;
        let unchanged = Arc::ptr_eq(&known.entity, service)
            && match (known_balanced, balanced) {
                (Some(known), Some(balanced)) => known.is(balanced),
                (known, balanced) => known.is_none() && balanced.is_none(),
            };
        unchanged.then(|| known.clone())
    }
}
