//! Document to snapshot. Everything that can fail fails here, off the workers' threads, before anything changes.

use super::instances::Instances;
use super::scopes::{Placed, Scopes};
use super::{CompiledRoute, CompiledService, Consumer, Destination, Snapshot};
use crate::chain::Instance;
use crate::exchange::ConsumerIndex;
use crate::plugin::{Build, Shared};
use crate::plugins::PLUGINS;
use crate::retained::Retained;
use crate::route::{Calculation, Patterns, RouteError, Router};
use crate::tls::{self, Asked, Certificates, CertifiedKey, Verify};
use crate::upstream::balance::{Balancer, Cursors};
use crate::upstream::endpoint::{Endpoint, EndpointIds, Speaks};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_model::entity::{self, Protocol};
use weir_model::{Document, Uuid};

/// What cannot be put in force, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// The entity: `route orders`, `certificate 5f…`.
    pub entity: String,
    /// What is wrong with it.
    pub message: String,
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.entity, self.message)
    }
}

impl std::error::Error for CompileError {}

/// Compiles documents for one node.
pub struct Compiler {
    /// How many workers will run the snapshots.
    pub workers: usize,
    /// Served where no certificate fits the client's server name.
    pub default_certificate: Arc<CertifiedKey>,
    /// What upstreams are verified against where a service names no certificates of its own.
    pub trusted_certificates: Vec<rustls::pki_types::CertificateDer<'static>>,
    /// State that outlives snapshots.
    pub retained: Arc<Retained>,
}

/// Round-robin positions, by the upstream's id.
#[derive(Default)]
pub(super) struct Positions(pub(super) Mutex<HashMap<Uuid, Arc<Cursors>>>);

impl Positions {
    /// Forgets upstreams that are no more; balancers still in use keep their own.
    fn keep_those_of(&self, document: &Document) {
        let ids: HashSet<Uuid> = document.upstreams.iter().map(|upstream| upstream.id).collect();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| ids.contains(id));
    }
}

impl Compiler {
    /// Compiles the document, or says everything that is wrong with it.
    pub fn compile(&self, document: &Document) -> Result<Snapshot, Vec<CompileError>> {
        let compilation = Compilation::new(self, document);
        let snapshot = compilation.snapshot();
        self.retained.get::<Positions>().keep_those_of(document);
        match compilation.errors.into_inner() {
            errors if errors.is_empty() => snapshot.ok_or(errors),
            errors => Err(errors),
        }
    }
}

/// One document on its way to a snapshot.
pub(super) struct Compilation<'d> {
    compiler: &'d Compiler,
    document: &'d Document,
    consumers: HashMap<Uuid, ConsumerIndex>,
    disabled: HashSet<Uuid>,
    pub(super) errors: RefCell<Vec<CompileError>>,
}

impl<'d> Compilation<'d> {
    pub(super) fn new(compiler: &'d Compiler, document: &'d Document) -> Self {
        let consumers =
            document.consumers.iter().zip(0u32..).map(|(c, i)| (c.id, ConsumerIndex(i))).collect();
        let disabled = document.services.iter().filter(|service| !service.enabled).map(|s| s.id).collect();
        Self { compiler, document, consumers, disabled, errors: RefCell::default() }
    }

    pub(super) fn fail(&self, entity: String, message: impl ToString) {
        self.errors.borrow_mut().push(CompileError { entity, message: message.to_string() });
    }

    /// Goes on after an error, so that all are found.
    fn snapshot(&self) -> Option<Snapshot> {
        let certificates = self.certificates();
        let services = self.services(&certificates);
        let plugins = self.compiler.retained.get::<LastInstances>();
        let plugins =
            Scopes::new(self.plugins(&mut plugins.0.lock().unwrap_or_else(PoisonError::into_inner)));
        let off = |route: &entity::Route| route.service.is_some_and(|id| self.disabled.contains(&id));
        let served = self
            .document
            .routes
            .iter()
            .filter(|route| route.protocols.iter().any(|p| is_http(*p)) && !off(route));
        let routes: Vec<&Arc<entity::Route>> = served.collect();
        let patterns = self.compiler.retained.get::<LastPatterns>();
        let router = self.router(&routes, &mut patterns.0.lock().unwrap_or_else(PoisonError::into_inner));
        let routes: Vec<_> = routes.into_iter().map(|route| self.route(route, &services, &plugins)).collect();
        let asking = routes.iter().filter(|route| route.https && route.chain.wants_client_certificate);
        let consumer = |c: &Arc<entity::Consumer>| Consumer { id_text: text(c.id), entity: c.clone() };
        Some(Snapshot {
            router: router?,
            asked: Asked::by(asking.map(|route| &*route.entity)),
            routes,
            consumers: self.document.consumers.iter().map(consumer).collect(),
            global: plugins.chain(None, None),
            certificates,
        })
    }

    pub(super) fn router(&self, routes: &[&Arc<entity::Route>], patterns: &mut Patterns) -> Option<Router> {
        let fail = |errors: Vec<RouteError>| {
            for error in errors {
                let route = routes[error.index as usize];
                self.fail(named("route", &route.name, route.id), error);
            }
        };
        let routes: Vec<&entity::Route> = routes.iter().map(|route| &***route).collect();
        Router::rebuild(&routes, Calculation::default(), patterns).map_err(fail).ok()
    }

    fn certificates(&self) -> Arc<Certificates> {
        let default = self.compiler.default_certificate.clone();
        let last = self.compiler.retained.get::<LastCertificates>();
        let mut last = last.0.lock().unwrap_or_else(PoisonError::into_inner);
        let built = match &*last {
            Some(last) => last.rebuild(self.document),
            None => Certificates::build(self.document, default.clone()),
        };
        let built = built.unwrap_or_else(|errors| {
            errors.into_iter().for_each(|error| self.fail("certificates".into(), error));
            Certificates::only(default)
        });
        let built = Arc::new(built);
        *last = Some(built.clone());
        built
    }

    fn route(
        &self,
        route: &Arc<entity::Route>,
        services: &HashMap<Uuid, Arc<CompiledService>>,
        plugins: &Scopes,
    ) -> CompiledRoute {
        CompiledRoute {
            id_text: text(route.id),
            service: route.service.and_then(|id| services.get(&id).cloned()),
            chain: plugins.chain(Some(route.id), route.service),
            http: serves(&route.protocols, false),
            https: serves(&route.protocols, true),
            grpc: route.protocols.iter().any(|protocol| is_grpc(*protocol)),
            entity: route.clone(),
        }
    }

    // ---- services and upstreams ----

    pub(super) fn services(&self, certificates: &Certificates) -> HashMap<Uuid, Arc<CompiledService>> {
        let upstreams = Upstreams::new(self.document);
        let compiled =
            self.document.services.iter().filter(|service| is_http(service.protocol)).filter_map(|service| {
                let tls = self.service_tls(service, certificates)?;
                let destination = match upstreams.by_name.get(service.host.as_str()) {
                    Some(upstream) => {
                        Destination::Upstream(self.balancer(service, upstream, &upstreams, tls))
                    }
                    None => {
                        let place = (service.host.as_str(), service.port);
                        Destination::Host(self.endpoint(service, place, None, &tls))
                    }
                };
                let id_text = text(service.id);
                Some((
                    service.id,
                    Arc::new(CompiledService { entity: service.clone(), id_text, destination }),
                ))
            });
        compiled.collect()
    }

    fn balancer(
        &self,
        service: &entity::Service,
        upstream: &entity::Upstream,
        upstreams: &Upstreams<'_>,
        tls: Option<ServiceTls>,
    ) -> Arc<Balancer> {
        let targets = upstreams.targets.get(&upstream.id).map_or(&[][..], Vec::as_slice);
        let endpoints = targets.iter().filter_map(|target| {
            let Some((host, port)) = host_port(&target.target) else {
                self.fail(format!("target {}", target.target), "write it as host:port");
                return None;
            };
            Some((self.endpoint(service, (host, port), upstream.host_header.as_deref(), &tls), target.weight))
        });
        let positions = self.compiler.retained.get::<Positions>();
        let mut positions = positions.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Cursors::new(self.compiler.workers));
        let cursors = positions.entry(upstream.id).or_insert_with(fresh).clone();
        drop(positions);
        Arc::new(Balancer::new(endpoints.collect(), cursors))
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
        Endpoint::new(&ids, service.protocol, place, host_header, tls, Speaks::of(service))
    }

    /// How the service's connections are secured; `None` where that cannot be compiled.
    fn service_tls(
        &self,
        service: &entity::Service,
        certificates: &Certificates,
    ) -> Option<Option<ServiceTls>> {
        if !matches!(service.protocol, Protocol::Https | Protocol::Grpcs) {
            return Some(None);
        }
        let verify = match service.tls_verify {
            Some(true) => self.verification(service),
            _ => None,
        };
        let identity = service.client_certificate.and_then(|id| certificates.get(id));
        let profile = self.tls_profile(service);
        let configs = self.compiler.retained.get::<ClientConfigs>();
        match configs
            .get(&profile, || Ok(Speaks::of(service).offered_by(tls::client_config(verify, identity)?)))
        {
            Ok(config) => Some(Some(ServiceTls { config, profile })),
            Err(error) => {
                self.fail(named("service", &service.name, service.id), error);
                None
            }
        }
    }

    /// What to check the upstream's certificate against: the service's certificates, else those of the settings.
    fn verification(&self, service: &entity::Service) -> Option<Verify> {
        let pems = self.trusted(service);
        let mut roots = Vec::new();
        for pem in pems {
            match tls::ca_certificates(pem) {
                Ok(certificates) => roots.extend(certificates),
                Err(error) => self.fail(named("service", &service.name, service.id), error),
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
    fn tls_profile(&self, service: &entity::Service) -> String {
        let mut hasher = DefaultHasher::new();
        (service.tls_verify, service.tls_verify_depth, self.trusted(service)).hash(&mut hasher);
        Speaks::of(service).hash(&mut hasher);
        if let Some(id) = service.client_certificate {
            let own = self.document.certificates.iter().find(|c| c.id == id);
            own.map(|c| (&c.cert, &c.key)).hash(&mut hasher);
        }
        format!("{:016x}", hasher.finish())
    }

    // ---- plugins ----

    pub(super) fn plugins(&self, last: &mut Instances) -> Vec<Placed> {
        let shared = Shared::default();
        let enabled = self.document.plugins.iter().filter(|plugin| plugin.enabled);
        let placed = enabled.filter_map(|plugin| self.plugin(plugin, &shared, last)).collect();
        last.finish();
        placed
    }

    fn plugin(&self, entity: &Arc<entity::Plugin>, shared: &Shared, last: &mut Instances) -> Option<Placed> {
        let definition = PLUGINS.iter().find(|definition| definition.name == entity.name)?;
        let retained = &self.compiler.retained;
        let build = Build::new(self.document, retained, entity, &self.consumers, shared);
        match last.get(entity, || (definition.build)(&entity.config, &build), || build.stands_alone()) {
            Ok(hooks) => Some(Placed {
                definition,
                instance: Instance {
                    id: entity.id,
                    hooks,
                    http: serves(&entity.protocols, false),
                    https: serves(&entity.protocols, true),
                },
                route: entity.route,
                service: entity.service,
                consumer: entity.consumer.and_then(|id| self.consumers.get(&id).copied()),
            }),
            Err(error) => {
                self.fail(named("plugin", &Some(entity.name.clone()), entity.id), error);
                None
            }
        }
    }
}

/// How one service's connections are secured.
struct ServiceTls {
    config: Arc<rustls::ClientConfig>,
    profile: String,
}

/// What was compiled last, so that only certificates that changed are parsed.
#[derive(Default)]
struct LastCertificates(Mutex<Option<Arc<Certificates>>>);

/// The regexes that were compiled last.
#[derive(Default)]
struct LastPatterns(Mutex<Patterns>);

/// The plugins' instances that were built last.
#[derive(Default)]
struct LastInstances(Mutex<Instances>);

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

/// The document's upstreams by name, and their targets.
struct Upstreams<'d> {
    by_name: HashMap<&'d str, &'d Arc<entity::Upstream>>,
    targets: HashMap<Uuid, Vec<&'d Arc<entity::Target>>>,
}

impl<'d> Upstreams<'d> {
    fn new(document: &'d Document) -> Self {
        let mut targets: HashMap<Uuid, Vec<&Arc<entity::Target>>> = HashMap::new();
        for target in &document.targets {
            targets.entry(target.upstream).or_default().push(target);
        }
        Self { by_name: document.upstreams.iter().map(|u| (u.name.as_str(), u)).collect(), targets }
    }
}

/// Whether requests of this protocol are HTTP's.
fn is_http(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Http | Protocol::Https) || is_grpc(protocol)
}

fn is_grpc(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Grpc | Protocol::Grpcs)
}

/// Whether requests that come over TLS, or in clear, are among these.
fn serves(protocols: &[Protocol], tls: bool) -> bool {
    let wanted = if tls { [Protocol::Https, Protocol::Grpcs] } else { [Protocol::Http, Protocol::Grpc] };
    protocols.iter().any(|protocol| wanted.contains(protocol))
}

fn host_port(target: &str) -> Option<(&str, u16)> {
    let (host, port) = target.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

fn text(id: Uuid) -> Box<str> {
    id.to_string().into()
}

pub(super) fn named(kind: &str, name: &Option<String>, id: Uuid) -> String {
    match name {
        Some(name) => format!("{kind} {name}"),
        None => format!("{kind} {id}"),
    }
}
