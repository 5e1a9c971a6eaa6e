//! Compiles a document into a snapshot, off the workers' threads. All errors occur here, before anything changes.

use super::asked::Asked;
use super::chain::{Chain, Instance};
use super::instances::Instances;
use super::last::{Identities, Last, LastParts, Parts, Plugins, same};
use super::numbers::Numbers;
use super::scopes::{Caller, Placed, Scopes};
use super::services::Services;
use super::unusable::Unusable;
use super::upstreams::Positions;
use super::users::Users;
use super::{CompiledRoute, CompiledService, Snapshot, StreamRouter};
use crate::recording::Recording;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use weir_model::entity::{self, EntityKind, PathHandling, Protocol};
use weir_model::{Document, Uuid};
use weir_net::tls::{Certificates, CertifiedKey, Subject, TlsError};
use weir_plugin::engine::{PluginInstances, Shared};
use weir_plugin::{BuildContext, Definition, Hooks, Retained, Route, Vaults};
use weir_router::expressions::ERROR_PREFIX;
use weir_router::{Calculation, Flavor, Order, Patterns, RouteError, Router};
use weir_upstream::health::TargetStates;
use weir_upstream::limit::UpstreamLimits;
use weir_upstream::retry_budget::RetryBudgets;

/// Why a document cannot be compiled, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// The entity: `route orders`, `certificate 5f…`.
    pub entity: String,
    /// Its kind and id, where it is one entity.
    pub of: Option<(EntityKind, Uuid)>,
    /// What is wrong with it; behind the field, as in `config.policy: …` or `cert: …`, where it is one of a plugin's or
    /// of a certificate's.
    pub message: String,
}

/// The field of a plugin's configuration that a message names first.
fn field_of(message: &str) -> Option<&str> {
    let (field, _) = message.split_once(": ")?;
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_.[]".contains(c);
    (field.starts_with("config.") && field.chars().all(is_path)).then_some(field)
}

impl CompileError {
    /// The field, or nothing, and what is wrong with it.
    pub fn field(&self) -> (&str, &str) {
        let of_certificate =
            matches!(self.of, Some((EntityKind::Certificates | EntityKind::CaCertificates, _)));
        let is_field = |name: &str| match name.strip_prefix("config.") {
            Some(rest) => !rest.contains(' '),
            None => of_certificate && ["cert", "key", "cert_alt", "key_alt"].contains(&name),
        };
        let at_field = self.message.split_once(": ").filter(|(name, _)| is_field(name));
        at_field.unwrap_or(("", &self.message))
    }

    /// The field where the mistake is, also where Kong's message names none.
    pub fn location(&self) -> &str {
        let is_route = matches!(self.of, Some((EntityKind::Routes, _)));
        match self.field() {
            ("", message) if is_route && is_of_expression(message) => "expression",
            (field, _) => field,
        }
    }
}

/// Whether a route's error is one of its expression.
fn is_of_expression(message: &str) -> bool {
    message.starts_with(ERROR_PREFIX) || message.contains("`expression`")
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.entity, self.message)
    }
}

impl std::error::Error for CompileError {}

/// How upstreams are verified where their service does not say it: nginx's `proxy_ssl_verify` and its siblings.
#[derive(Debug, Clone, Default)]
pub struct UpstreamVerification {
    /// Whether upstreams of requests must have a certificate from a trusted authority.
    pub of_requests: bool,
    /// Whether upstreams of stream sessions must.
    pub of_sessions: bool,
    /// The authorities, in place of [`Compiler::trusted_certificates`].
    pub trusted_certificates: Option<Vec<rustls::pki_types::CertificateDer<'static>>>,
    /// How many certificates may be between the upstream's and an authority's.
    pub depth: Option<u8>,
}

/// Compiles documents for one node.
pub struct Compiler {
    /// How many workers will run the snapshots.
    pub workers: usize,
    /// Served where no certificate fits the client's server name.
    pub default_certificate: Arc<CertifiedKey>,
    /// Presented to upstreams that ask for a certificate, where no entity names one for them.
    pub client_certificate: Option<Arc<CertifiedKey>>,
    /// What upstreams are verified against where a service names no certificates of its own.
    pub trusted_certificates: Vec<rustls::pki_types::CertificateDer<'static>>,
    /// How upstreams are verified where their service does not say it.
    pub upstream_verification: UpstreamVerification,
    /// Whether servers that plugins send logs and spans to are verified against `trusted_certificates`.
    pub log_tls_verify: bool,
    /// Every plugin that there is.
    pub plugins: &'static [Definition],
    /// How routes are written and ordered.
    pub router_flavor: Flavor,
    /// State that outlives snapshots.
    pub retained: Arc<Retained>,
}

impl Compiler {
    /// Compiles the document, or says everything that is wrong with it. What depends on nothing that has changed since
    /// the last time is used again, so that a change costs what it changes. Waits for vaults whose secrets it needs and
    /// that have not been asked yet.
    pub fn compile(&self, document: &Document) -> Result<Snapshot, Vec<CompileError>> {
        let last = self.retained.get::<Last>();
        let mut last = last.0.lock().unwrap_or_else(PoisonError::into_inner);
        let vaults = self.retained.get::<Vaults>();
        let mut resolved = vaults.resolve(document, self.plugins);
        let secretive = std::mem::take(&mut resolved.secretive);
        let document = &*resolved.document;
        let users = last.users(document);
        let compilation = Compilation { secretive, ..Compilation::new(self, document, users) };
        let compiled = compilation.snapshot(&mut last);
        self.retained.get::<RetryBudgets>().forget_unused();
        self.retained.get::<UpstreamLimits>().forget_unused();
        match (compilation.errors.into_inner(), compiled) {
            (errors, Some(parts)) if errors.is_empty() => {
                self.retained.get::<Positions>().keep_those_of(document);
                self.retained.get::<TargetStates>().keep_those_of(document);
                vaults.keep_those_of(&resolved);
                Ok(last.keep(parts))
            }
            (errors, _) => Err(errors),
        }
    }
}

/// One document on its way to a snapshot.
pub(super) struct Compilation<'d> {
    pub(super) compiler: &'d Compiler,
    pub(super) document: &'d Document,
    users: Arc<Users>,
    /// The entities that refer to secrets. What is wrong with these does not keep the others from being compiled.
    secretive: HashSet<(EntityKind, Uuid)>,
    pub(super) errors: RefCell<Vec<CompileError>>,
    /// The plugins that cannot be built with their secrets: a line each.
    unusable: RefCell<Vec<String>>,
}

impl<'d> Compilation<'d> {
    pub(super) fn new(compiler: &'d Compiler, document: &'d Document, users: Arc<Users>) -> Self {
        let (secretive, errors, unusable) = (HashSet::new(), RefCell::default(), RefCell::default());
        Self { compiler, document, users, secretive, errors, unusable }
    }

    pub(super) fn fail(&self, entity: String, message: impl ToString) {
        self.errors.borrow_mut().push(CompileError { entity, of: None, message: message.to_string() });
    }

    /// The same, of one entity.
    pub(super) fn fail_of(&self, kind: EntityKind, id: Uuid, name: &Option<String>, message: impl ToString) {
        let word = kind.as_str().trim_end_matches('s');
        let entity = named(word, name, id);
        let error = CompileError { entity, of: Some((kind, id)), message: message.to_string() };
        self.errors.borrow_mut().push(error);
    }

    /// The same, of the certificate or the server name that the error names.
    pub(super) fn fail_tls(&self, error: TlsError) {
        let sni = |name: &str| self.document.snis.iter().find(|sni| sni.name == name).map(|sni| sni.id);
        let message = error.message();
        match &error.subject {
            Subject::Certificate { id, .. } => self.fail_of(EntityKind::Certificates, *id, &None, message),
            Subject::CaCertificate(Some(id)) => self.fail_of(EntityKind::CaCertificates, *id, &None, message),
            Subject::Sni(name) => match sni(name) {
                Some(id) => self.fail_of(EntityKind::Snis, id, &Some(name.clone()), message),
                None => self.fail("certificates".into(), error),
            },
            _ => self.fail("certificates".into(), error),
        }
    }

    /// Goes on after an error, so that all are found.
    fn snapshot(&self, last: &mut LastParts) -> Option<Parts> {
        let identities = last.identities(self.document).unwrap_or_else(|| Arc::new(self.identities(last)));
        let before = last.parts.as_ref().map(|parts| &*parts.services);
        let services = last.services(self.document, &identities);
        let services = services.unwrap_or_else(|| Arc::new(self.services(&identities, before)));
        let plugins = last.plugins(self.document, &self.users);
        let plugins = plugins.unwrap_or_else(|| Arc::new(self.scopes(last)));
        let speaks_http = |route: &&Arc<entity::Route>| route.protocols.iter().any(|p| is_http(*p));
        let served: Vec<_> = self.served(&services).filter(speaks_http).collect();
        let router = match last.router(&served) {
            Some(router) => Some(router),
            None => self.router(&served, &mut last.patterns).map(Arc::new),
        };
        let routes = self.routes(&served, last, (&services, &plugins));
        let asking = routes.iter().filter(|route| route.https && route.chain.wants_client_certificate);
        let asked = Arc::new(Asked::by(asking.map(|route| &*route.entity)));
        let streams = self.streams(last, &services, &plugins).map(Arc::new);
        let watched = self.watched(&identities.certificates);
        let recording = self.compiler.retained.get::<Recording>();
        let numbers = Numbers::new(&recording, last, (&routes, &self.users), self.compiler.plugins);
        let (users, router, streams, numbers) = (self.users.clone(), router?, streams?, Arc::new(numbers));
        Some(Parts { identities, services, users, plugins, routes, router, streams, asked, watched, numbers })
    }

    /// The routes of services that are not disabled.
    pub(super) fn served<'s>(
        &self,
        services: &'s Services,
    ) -> impl Iterator<Item = &'d Arc<entity::Route>> + use<'d, 's> {
        let off = |route: &entity::Route| route.service.is_some_and(|id| services.disabled.contains(&id));
        self.document.routes.iter().filter(move |route| !off(route))
    }

    fn routes(
        &self,
        served: &[&Arc<entity::Route>],
        last: &LastParts,
        (services, plugins): (&Services, &Arc<Plugins>),
    ) -> Arc<[CompiledRoute]> {
        let mut known = last.routes(plugins);
        let compiled = served.iter().map(|route| {
            let service = route.service.and_then(|id| services.get(id));
            let service = service.filter(|service| is_http(service.entity.protocol));
            known.take(route, service).unwrap_or_else(|| {
                let chain = plugins.scopes.chain(Some(route.id), route.service);
                let mut compiled = CompiledRoute::new(route, service, chain);
                if self.compiler.router_flavor == Flavor::Traditional {
                    compiled.path_handling = route.path_handling;
                }
                compiled
            })
        });
        compiled.collect()
    }

    pub(super) fn router(&self, routes: &[&Arc<entity::Route>], patterns: &mut Patterns) -> Option<Router> {
        let order = Order { flavor: self.compiler.router_flavor, calculation: Calculation::default() };
        let entities: Vec<&entity::Route> = routes.iter().map(|route| &***route).collect();
        Router::rebuild(&entities, order, patterns).map_err(|errors| self.fail_routes(routes, errors)).ok()
    }

    /// The router of streams, unless a route is refused.
    pub(super) fn stream_router(
        &self,
        routes: &[&Arc<entity::Route>],
        patterns: &mut Patterns,
    ) -> Option<StreamRouter> {
        let entities: Vec<&entity::Route> = routes.iter().map(|route| &***route).collect();
        let built = StreamRouter::build(&entities, self.compiler.router_flavor, patterns);
        built.map_err(|errors| self.fail_routes(routes, errors)).ok()
    }

    fn fail_routes(&self, routes: &[&Arc<entity::Route>], errors: Vec<RouteError>) {
        for error in errors {
            let route = routes[error.index as usize];
            self.fail_of(EntityKind::Routes, route.id, &route.name, error);
        }
    }

    /// Parses certificates that have changed.
    fn identities(&self, last: &LastParts) -> Identities {
        let default = self.compiler.default_certificate.clone();
        let none = Certificates::only(default.clone());
        let before = last.parts.as_ref().map_or(&none, |parts| &parts.identities.certificates);
        let may_fail = |id| self.secretive.contains(&(EntityKind::Certificates, id));
        let built = before.rebuild(self.document, may_fail);
        let certificates = built.unwrap_or_else(|errors| {
            errors.into_iter().for_each(|error| self.fail_tls(error));
            Certificates::only(default)
        });
        let of = (self.document.certificates.clone(), self.document.snis.clone());
        Identities { certificates: Arc::new(certificates), of }
    }

    // ---- plugins ----

    fn scopes(&self, last: &mut LastParts) -> Plugins {
        let (document, definitions) = (self.document, self.compiler.plugins);
        let placed = self.plugins(&mut last.instances);
        let of_plugin = |name: &str| {
            let own = placed.iter().map(|placed| &placed.instance).filter(|instance| instance.name == name);
            own.map(|instance| instance.hooks.clone()).collect()
        };
        let made = PluginInstances::new(definitions, of_plugin);
        let before = last.parts.as_ref().map(|parts| &*parts.plugins);
        let same = before.filter(|before| same(&before.of.0, &document.plugins));
        let known = same.map(|before| &before.instances).filter(|known| known.are_those_of(&made));
        let instances = known.cloned().unwrap_or_else(|| Arc::new(made));
        let of = (document.plugins.clone(), document.ca_certificates.clone());
        Plugins { of, definitions, instances, scopes: Scopes::new(placed), unusable: self.unusable.take() }
    }

    pub(super) fn plugins(&self, last: &mut Instances) -> Vec<Placed> {
        let shared = Shared::new(&self.compiler.trusted_certificates, self.compiler.log_tls_verify);
        let enabled = self.document.plugins.iter().filter(|plugin| plugin.enabled);
        let placed = enabled.filter_map(|plugin| self.plugin(plugin, &shared, last)).collect();
        last.finish();
        placed
    }

    fn plugin(&self, entity: &Arc<entity::Plugin>, shared: &Shared, last: &mut Instances) -> Option<Placed> {
        let definition = self.compiler.plugins.iter().find(|definition| definition.name == entity.name)?;
        let caller = self.caller(entity)?;
        let retained = &self.compiler.retained;
        let build = BuildContext::new(self.document, retained, entity, &self.users.index, shared);
        let placed = |hooks| Placed {
            priority: definition.priority,
            instance: instance(definition, entity, hooks),
            route: entity.route,
            service: entity.service,
            caller,
        };
        match last.get(entity, || (definition.build)(&entity.config, &build), || build.stands_alone()) {
            Ok(hooks) => Some(placed(hooks)),
            // What is wrong may quote a secret, but not where it is.
            Err(error) if self.secretive.contains(&(EntityKind::Plugins, entity.id)) => {
                let (name, id) = (&entity.name, entity.id);
                let outcome = if definition.fails_open { "pass without it" } else { "are answered 500" };
                let place = match field_of(&error) {
                    Some(field) => format!(" for `{field}`, and what the plugin's page says of that field"),
                    None => String::new(),
                };
                let line = format!(
                    "plugin {name} {id} cannot be built with the secrets that it refers to, so its requests {outcome}: \
                     check what the vault has{place}"
                );
                tracing::error!("{line}");
                self.unusable.borrow_mut().push(line);
                (!definition.fails_open).then(|| placed(Arc::new(Unusable)))
            }
            Err(error) => {
                self.fail_of(EntityKind::Plugins, entity.id, &Some(entity.name.clone()), error);
                None
            }
        }
    }

    fn caller(&self, entity: &entity::Plugin) -> Option<Caller> {
        match (entity.consumer, entity.consumer_group) {
            (Some(id), _) => self.users.index.get(&id).copied().map(Caller::Consumer),
            (None, Some(id)) => self.users.groups.index(id).map(Caller::Group),
            (None, None) => Some(Caller::Anybody),
        }
    }
}

fn instance(definition: &Definition, entity: &entity::Plugin, hooks: Arc<dyn Hooks>) -> Instance {
    let (phases, protocols) = (hooks.phases(), &entity.protocols);
    Instance {
        id: entity.id,
        name: definition.name,
        // A guest that need not know of consumers may do more than authenticate.
        authenticates: !definition.schema.for_consumers && definition.schema.described.is_none(),
        hooks,
        http: phases.only_if(serves(protocols, false)),
        https: phases.only_if(serves(protocols, true)),
        stream: phases.only_if(protocols.iter().any(|protocol| protocol.is_stream())),
    }
}

impl CompiledRoute {
    /// A route with this service and these plugins.
    pub(crate) fn new(
        route: &Arc<entity::Route>,
        service: Option<&Arc<CompiledService>>,
        chain: Arc<Chain>,
    ) -> Self {
        Self {
            service: service.cloned(),
            http: serves(&route.protocols, false),
            https: serves(&route.protocols, true),
            grpc: route.protocols.iter().any(|protocol| is_grpc(*protocol)),
            strips_path: route.strips_path(),
            preserve_host: route.preserve_host,
            request_buffering: route.request_buffering,
            response_buffering: route.response_buffering,
            path_handling: PathHandling::V0,
            chain,
            view: Arc::new(Route::new(route.clone(), service.map(|service| service.view.clone()))),
        }
    }
}

/// Whether requests of this protocol are HTTP's.
pub(super) fn is_http(protocol: Protocol) -> bool {
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

pub(super) fn named(kind: &str, name: &Option<String>, id: Uuid) -> String {
    match name {
        Some(name) => format!("{kind} {name}"),
        None => format!("{kind} {id}"),
    }
}
