//! Services and upstreams: how to reach what a route leads to.

use super::compile::Compilation;
use super::last::{Identities, same};
use super::{CompiledService, Destination};
use foldhash::fast::RandomState;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_model::entity::{self, EntityKind, Protocol};
use weir_model::{Document, Uuid};
use weir_net::tls::{self, Certificates, CertifiedKey, Verify};
use weir_plugin::Service;
use weir_upstream::balance::{Balancer, Cursors, Rings};
use weir_upstream::endpoint::{Endpoint, EndpointIds, UpstreamProtocol};
use weir_upstream::health::TargetMonitors;
use weir_upstream::retry_budget::RetryBudgets;

impl Compilation<'_> {
    /// Those that can be reached, with what is unchanged of the last.
    pub(super) fn services(&self, identities: &Arc<Identities>, last: Option<&Services>) -> Services {
        let mut services = Services::new(self.document, identities.clone());
        let last = last.filter(|last| last.trust_as(&services));
        let upstreams = Upstreams::new(self.document);
        for service in &self.document.services {
            let balanced = upstreams.of(&service.host);
            let known = last.and_then(|last| last.take(service, balanced.as_ref()));
            let compiled = match known {
                Some(known) => Some(known),
                None => self.service(service, balanced.as_ref(), &identities.certificates).map(Arc::new),
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
        balanced: Option<&Balanced>,
        certificates: &Certificates,
    ) -> Option<CompiledService> {
        let tls = self.service_tls(service, balanced, certificates)?;
        let destination = match balanced {
            Some(balanced) => Destination::Upstream(self.balancer(service, balanced, tls)),
            None => {
                let place = (service.host.as_str(), service.port);
                Destination::Host(self.endpoint(service, place, None, &tls))
            }
        };
        let name = match balanced {
            Some(balanced) => balanced.upstream.name.clone(),
            None => format!("{}:{}", service.host, service.port),
        };
        let budgets = self.compiler.retained.get::<RetryBudgets>();
        let retry_budget = budgets.of(&name, self.compiler.workers);
        let (entity, view) = (service.clone(), Arc::new(Service::new(service.clone())));
        Some(CompiledService { entity, view, destination, retry_budget })
    }

    fn balancer(
        &self,
        service: &entity::Service,
        balanced: &Balanced,
        tls: Option<ServiceTls>,
    ) -> Arc<Balancer> {
        let Balanced { upstream, targets } = balanced;
        let monitors = TargetMonitors::new(upstream, &self.compiler.retained.get());
        let endpoints = targets.iter().filter_map(|target| {
            let Some((host, port)) = target.host_and_port() else {
                let name = Some(target.target.clone());
                self.fail_of(EntityKind::Targets, target.id, &name, "write it as host:port");
                return None;
            };
            let endpoint = self.endpoint(service, (host, port), upstream.host_header.as_deref(), &tls);
            Some((Endpoint { monitor: monitors.of(&target.target), ..endpoint }, target.weight))
        });
        let positions = self.compiler.retained.get::<Positions>();
        let mut positions = positions.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Cursors::new(self.compiler.workers));
        let cursors = positions.entry(upstream.id).or_insert_with(fresh).clone();
        drop(positions);
        let rings = self.compiler.retained.get::<Rings>();
        Arc::new(Balancer::new(upstream, endpoints.collect(), (cursors, &rings)))
    }

    fn endpoint(
        &self,
        service: &entity::Service,
        place: (&str, u16),
        host_header: Option<&str>,
        tls: &Option<ServiceTls>,
    ) -> Endpoint {
        let ids = self.compiler.retained.get::<EndpointIds>();
        let tls = tls.as_ref().map(|tls| (tls.config.clone(), tls.profile.as_str()));
        Endpoint::new(&ids, service.protocol, place, host_header, tls, UpstreamProtocol::of(service))
    }

    /// How the service's connections are secured; `None` where that cannot be compiled.
    fn service_tls(
        &self,
        service: &entity::Service,
        balanced: Option<&Balanced>,
        certificates: &Certificates,
    ) -> Option<Option<ServiceTls>> {
        if !matches!(service.protocol, Protocol::Https | Protocol::Grpcs | Protocol::Tls) {
            return Some(None);
        }
        let verify = match service.tls_verify {
            Some(true) => self.verification(service),
            _ => None,
        };
        // As Kong has it: the service's own, then that of the upstream it is balanced over, then that of the settings.
        let of_upstream = balanced.and_then(|balanced| balanced.upstream.client_certificate);
        let presented = service.client_certificate.or(of_upstream);
        let identity = self.identity(presented, certificates);
        let profile = self.tls_profile(service, presented);
        let configs = self.compiler.retained.get::<ClientConfigs>();
        let make = || Ok(UpstreamProtocol::of(service).offered_by(tls::client_config(verify, identity)?));
        match configs.get(&profile, make) {
            Ok(config) => Some(Some(ServiceTls { config, profile })),
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
    fn verification(&self, service: &entity::Service) -> Option<Verify> {
        let pems = self.trusted(service);
        let mut roots = Vec::new();
        for pem in pems {
            match tls::ca_certificates(pem) {
                Ok(certificates) => roots.extend(certificates),
                Err(error) => self.fail_of(EntityKind::Services, service.id, &service.name, error),
            }
        }
        if roots.is_empty() {
            roots = self.compiler.trusted_certificates.clone();
        }
        Some(Verify { roots, depth: service.tls_verify_depth })
    }

    fn trusted(&self, service: &entity::Service) -> Vec<&str> {
        let ids = service.ca_certificates.as_deref().unwrap_or_default();
        let named = self.document.ca_certificates.iter().filter(|ca| ids.contains(&ca.id));
        named.map(|ca| ca.cert.as_str()).collect()
    }

    /// Equal for services whose connections may be shared; changes with the certificates behind the ids.
    fn tls_profile(&self, service: &entity::Service, client_certificate: Option<Uuid>) -> String {
        let mut hasher = SipHasher13::new();
        (service.tls_verify, service.tls_verify_depth, self.trusted(service)).hash(&mut hasher);
        UpstreamProtocol::of(service).hash(&mut hasher);
        if let Some(id) = client_certificate {
            let own = self.document.certificates.iter().find(|c| c.id == id);
            own.map(|c| (&c.cert, &c.key, &c.cert_alt, &c.key_alt)).hash(&mut hasher);
        }
        format!("{:032x}", hasher.finish128().as_u128())
    }
}

/// How one service's connections are secured.
struct ServiceTls {
    config: Arc<rustls::ClientConfig>,
    profile: String,
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
}

impl Services {
    /// None yet of the document.
    fn new(document: &Document, identities: Arc<Identities>) -> Services {
        let disabled = document.services.iter().filter(|service| !service.enabled);
        Services {
            by_id: HashMap::default(),
            disabled: disabled.map(|service| service.id).collect(),
            services: document.services.clone(),
            upstreams: document.upstreams.clone(),
            targets: document.targets.clone(),
            authorities: document.ca_certificates.clone(),
            identities,
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

/// An upstream and its targets.
struct Balanced {
    upstream: Arc<entity::Upstream>,
    targets: Vec<Arc<entity::Target>>,
}

impl Balanced {
    /// Whether it is what it was.
    fn is(&self, other: &Balanced) -> bool {
        Arc::ptr_eq(&self.upstream, &other.upstream) && same(&self.targets, &other.targets)
    }
}

/// The document's upstreams by name, and their targets.
struct Upstreams<'d> {
    by_name: HashMap<&'d str, &'d Arc<entity::Upstream>>,
    targets: HashMap<Uuid, Vec<Arc<entity::Target>>>,
}

impl<'d> Upstreams<'d> {
    fn new(document: &'d Document) -> Self {
        let mut targets: HashMap<Uuid, Vec<Arc<entity::Target>>> = HashMap::new();
        for target in &document.targets {
            targets.entry(target.upstream).or_default().push(target.clone());
        }
        Self { by_name: document.upstreams.iter().map(|u| (u.name.as_str(), u)).collect(), targets }
    }

    /// What a service with this host is balanced over.
    fn of(&self, host: &str) -> Option<Balanced> {
        let upstream = *self.by_name.get(host)?;
        let targets = self.targets.get(&upstream.id).cloned().unwrap_or_default();
        Some(Balanced { upstream: upstream.clone(), targets })
    }
}

/// Round-robin positions, by the upstream's id.
#[derive(Default)]
pub(super) struct Positions(pub(super) Mutex<HashMap<Uuid, Arc<Cursors>>>);

impl Positions {
    /// Forgets upstreams that are no more; balancers still in use keep their own.
    pub(super) fn keep_those_of(&self, document: &Document) {
        let ids: HashSet<Uuid> = document.upstreams.iter().map(|upstream| upstream.id).collect();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| ids.contains(id));
    }
}
