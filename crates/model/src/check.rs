//! Rules across entities: every violation at once.
use crate::deprecated_fields::deprecated_fields;
use crate::document::Document;
use crate::entities::Entities;
use crate::entity::EntityKind::{self, *};
use crate::entity::{CustomKind, Entity, Plugin, Route, Service, Unique};
use crate::entity_error::{EntityError, EntityWarning};
use crate::limits_of_services::limits_of_services;
use crate::plugin_schema::{PluginSchema, find_plugin};
use crate::rule;
use crate::schema::{closest, quoted};
use crate::unknown_vaults::unknown_vaults;
use crate::without_targets::without_targets;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use uuid::Uuid;

/// Every violation of a rule across entities.
pub fn check(document: &Document, plugins: &[PluginSchema]) -> Vec<EntityError> {
    let mut found = Vec::new();
    ids(document, &mut found);
    names(document, &mut found);
    custom(document, &mut found);
    scopes(document, &mut found);
    protocols(document, plugins, &mut found);
    shared_counters(document, plugins, &mut found);
    found
}

/// Warnings: what breaks no rule, and is probably a mistake.
pub fn warnings(document: &Document, plugins: &[PluginSchema]) -> Vec<EntityWarning> {
    let mut found = unused(document, plugins);
    found.extend(relation_warnings(document, plugins));
    found.extend(entity_warnings(document, plugins));
    let prefixes: Vec<&str> = document.vaults.iter().map(|vault| vault.prefix.as_str()).collect();
    found.extend(unknown_vaults(document, &prefixes, plugins));
    found
}

/// Warnings about entities that do not fit together.
pub fn relation_warnings(document: &Document, plugins: &[PluginSchema]) -> Vec<EntityWarning> {
    let mut found: Vec<_> = unknown_anonymous(document).collect();
    found.extend(idle_plugins(document, plugins));
    found.extend(without_targets(document));
    found.extend(limits_of_services(document));
    found.extend(plugins.iter().flat_map(|plugin| (plugin.document_warnings)(document)));
    found
}

/// The same as lines, as far as they concern a change: they are about an entity that was put, or about a plugin that names one,
/// or the service of a route that was put. A service is concerned by the targets that were put, and by the upstreams that have lost
/// some, rather than by its upstream, which is written before its targets.
pub fn relation_warnings_of_change(
    document: &Document,
    (put, lost_targets): (&HashSet<(EntityKind, Uuid)>, &[Uuid]),
    plugins: &[PluginSchema],
) -> Vec<String> {
    let targets = document.targets.iter().filter(|target| put.contains(&(Targets, target.id)));
    let of_targets: HashSet<_> =
        targets.map(|target| target.upstream).chain(lost_targets.iter().copied()).collect();
    let upstreams = document.upstreams.iter().filter(|upstream| of_targets.contains(&upstream.id));
    let hosts: HashSet<&str> = upstreams.map(|upstream| upstream.name.as_str()).collect();
    let of_service =
        |service: &Service| put.contains(&(Services, service.id)) || hosts.contains(service.host.as_str());
    let routes = document.routes.iter().filter(|route| put.contains(&(Routes, route.id)));
    let services: HashSet<_> = routes.filter_map(|route| Some((Services, route.service?))).collect();
    let of_plugin = |entity: Entity| {
        let named = entity.references().into_iter().map(|to| (to.kind, to.id));
        named.chain([(entity.kind(), entity.id())]).any(|it| put.contains(&it) || services.contains(&it))
    };
    let is_concerned = |entity: Entity| match &entity {
        Entity::Services(service) => of_service(service),
        _ => of_plugin(entity),
    };
    // All of these warnings are about services and plugins.
    if !document.services.iter().any(|service| of_service(service))
        && !document.plugins.iter().any(|plugin| of_plugin(Entity::Plugins(plugin.clone())))
    {
        return Vec::new();
    }
    let found = relation_warnings(document, plugins).into_iter();
    let concerned = found.filter(|warning| document.at(warning.entity).is_some_and(is_concerned));
    concerned.map(|warning| document.line(&warning)).collect()
}

/// Warnings about entities that hold whatever other entities there are.
pub fn entity_warnings(document: &Document, plugins: &[PluginSchema]) -> Vec<EntityWarning> {
    let mut found = tags(document);
    found.extend(methods(document));
    found.extend(weak_keys(document));
    found.extend(net_port(document));
    for (index, plugin) in document.plugins.iter().enumerate() {
        let Some(schema) = find_plugin(plugins, &plugin.name) else { continue };
        let deprecated = schema.described.map(|it| deprecated_fields(it, &plugin.config)).unwrap_or_default();
        let doubts = (schema.warnings)(&plugin.config).into_iter().chain(deprecated);
        found.extend(doubts.map(|doubt| {
            EntityError::new((Plugins, index), format!("config.{}", doubt.path), doubt.message)
        }));
    }
    found
}

/// Tags that look like ours and have no effect.
fn tags(document: &Document) -> Vec<EntityError> {
    let mut found = Vec::new();
    macro_rules! tags_of {
        ($($collection:ident: $kind:ident),*) => {$(
            for (index, entity) in document.$collection.iter().enumerate() {
                let tags = entity.tags.iter().flatten().enumerate();
                let doubts = tags.filter_map(|(at, tag)| Some((at, crate::tags::doubt(tag, $kind)?)));
                found.extend(doubts.map(|(at, doubt)| EntityError::new(($kind, index), format!("tags[{at}]"), doubt)));
            }
        )*};
    }
    tags_of!(services: Services, routes: Routes, upstreams: Upstreams, targets: Targets, plugins: Plugins);
    found
}

/// The method that was probably meant by a name that is nearly that of one.
pub fn meant_method(method: &str) -> Option<&'static str> {
    let is_one = METHODS.contains(&method);
    if is_one { None } else { closest(method, METHODS) }
}

/// The methods that HTTP and WebDAV have, and caches.
const METHODS: [&str; 18] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "COPY",
    "LOCK",
    "MKCOL",
    "MOVE",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "REPORT",
    "UNLOCK",
];

/// Methods of routes that are nearly those of HTTP.
fn methods(document: &Document) -> Vec<EntityError> {
    let mut found = Vec::new();
    for (index, route) in document.routes.iter().enumerate() {
        for (at, method) in route.methods.iter().flatten().enumerate() {
            if let Some(near) = meant_method(method).filter(|_| found.len() < 20) {
                let message = format!("`{}` is no method of HTTP; did you mean `{near}`?", quoted(method));
                found.push(EntityError::new((Routes, index), format!("methods[{at}]"), message));
            }
        }
    }
    found
}

/// Certificates of RSA keys that are too short to sign with.
fn weak_keys(document: &Document) -> Vec<EntityError> {
    let mut found = Vec::new();
    for (index, certificate) in document.certificates.iter().enumerate() {
        let fields = [("cert", Some(&certificate.cert)), ("cert_alt", certificate.cert_alt.as_ref())];
        for (field, cert) in fields {
            if let Some(bits) = cert.and_then(|cert| rule::weak_rsa_bits(cert)) {
                let message = format!(
                    "an RSA key of {bits} bits can be factored and is not presented: clients get the default \
                     certificate, upstreams none; issue one with 2048 bits or more"
                );
                found.push(EntityError::new((Certificates, index), field, message));
            }
        }
    }
    found
}

/// Expressions with the old name of `net.dst.port`, which is read as that where an operator of numbers follows.
fn net_port(document: &Document) -> Vec<EntityError> {
    let is_compared = |rest: &str| rest.trim_start().starts_with(['=', '>', '<', '!']);
    let has = |text: &String| {
        text.match_indices("net.port").any(|(at, name)| is_compared(&text[at + name.len()..]))
    };
    let routes = (0..).zip(&document.routes).filter(|(_, route)| route.expression.as_ref().is_some_and(has));
    let message = "the field 'net.port' of expressions is deprecated; write 'net.dst.port' instead";
    routes
        .map(|(index, _)| EntityError::new((Routes, index), "expression".to_owned(), message.to_owned()))
        .collect()
}

/// Plugins whose `anonymous` names no consumer.
fn unknown_anonymous(document: &Document) -> impl Iterator<Item = EntityError> + '_ {
    let usernames: HashSet<&str> = document.consumers.iter().filter_map(|c| c.username.as_deref()).collect();
    let ids: HashSet<Uuid> = document.consumers.iter().map(|consumer| consumer.id).collect();
    let known = move |name: &str| {
        name.is_empty()
            || usernames.contains(name)
            || crate::rule::id(name).is_some_and(|id| ids.contains(&id))
    };
    document.plugins.iter().enumerate().filter_map(move |(index, plugin)| {
        plugin.config.get("anonymous")?.as_str().filter(|name| !known(name))?;
        let message = "names no consumer; add one with this `username`, or leave `anonymous` out";
        Some(EntityError::new((Plugins, index), "config.anonymous", message))
    })
}

/// Upstreams that no service names as its host, and no plugin in its configuration.
fn unused(document: &Document, plugins: &[PluginSchema]) -> Vec<EntityError> {
    let hosts = document.services.iter().map(|service| service.host.as_str());
    let of_plugins = document.plugins.iter().flat_map(|plugin| {
        let schema = find_plugin(plugins, &plugin.name);
        schema.map(|schema| (schema.upstreams)(&plugin.config)).unwrap_or_default()
    });
    let used: HashSet<&str> = hosts.chain(of_plugins).collect();
    let upstreams = document.upstreams.iter().enumerate();
    let unused = upstreams.filter(|(_, upstream)| !used.contains(upstream.name.as_str()));
    unused
        .map(|(index, upstream)| {
            let name = &upstream.name;
            let message = format!("no service uses the upstream `{name}`; write `host: {name}` in a service");
            EntityError::new((Upstreams, index), "name", message)
        })
        .collect()
}

/// Reports each key that is not the first of its kind.
fn unique<K: Hash + Eq>(
    kind: EntityKind,
    field: &str,
    keys: impl Iterator<Item = Option<K>>,
    describe: impl Fn(&K) -> String,
    found: &mut Vec<EntityError>,
) {
    let mut first: HashMap<K, usize> = HashMap::with_capacity(keys.size_hint().0);
    for (index, key) in keys.enumerate() {
        let Some(key) = key else { continue };
        match first.get(&key) {
            Some(earlier) => found.push(EntityError {
                earlier: Some((kind, *earlier)),
                ..EntityError::new((kind, index), field, describe(&key))
            }),
            None => drop(first.insert(key, index)),
        }
    }
}

fn twice<K: std::fmt::Display>(what: &str) -> impl Fn(&K) -> String + '_ {
    move |key| format!("the {what} `{}` is here twice; choose another", quoted(&key.to_string()))
}

fn ids(document: &Document, found: &mut Vec<EntityError>) {
    macro_rules! unique_ids {
        ($($collection:ident: $kind:ident),*) => {$({
            let ids = document.$collection.iter().map(|entity| Some(entity.id));
            unique($kind, "id", ids, twice("id"), found);
        })*};
    }
    unique_ids!(services: Services, routes: Routes, consumers: Consumers, upstreams: Upstreams);
    unique_ids!(consumer_groups: ConsumerGroups, consumer_group_consumers: ConsumerGroupConsumers);
    unique_ids!(plugins: Plugins, targets: Targets, certificates: Certificates, snis: Snis);
    unique_ids!(ca_certificates: CaCertificates, apisix_objects: ApisixObjects);
    unique_ids!(vaults: Vaults, key_sets: KeySets, keys: Keys);
    for (kind, list) in document.custom.iter() {
        unique(Custom(kind), "id", list.iter().map(|entity| Some(entity.id())), twice("id"), found);
    }
}

fn names(document: &Document, found: &mut Vec<EntityError>) {
    let d = document;
    unique(Services, "name", d.services.iter().map(|s| s.name.as_deref()), twice("service name"), found);
    unique(Routes, "name", d.routes.iter().map(|r| r.name.as_deref()), twice("route name"), found);
    unique(
        Consumers,
        "username",
        d.consumers.iter().map(|c| c.username.as_deref()),
        twice("username"),
        found,
    );
    unique(
        Consumers,
        "custom_id",
        d.consumers.iter().map(|c| c.custom_id.as_deref()),
        twice("custom_id"),
        found,
    );
    let groups = d.consumer_groups.iter().map(|group| Some(group.name.as_str()));
    unique(ConsumerGroups, "name", groups, twice("consumer group"), found);
    let members = d.consumer_group_consumers.iter().map(|it| Some((it.consumer_group, it.consumer)));
    let describe = |_: &_| "the consumer is in the group already; remove one".to_owned();
    unique(ConsumerGroupConsumers, "", members, describe, found);
    unique(
        Upstreams,
        "name",
        d.upstreams.iter().map(|u| Some(u.name.as_str())),
        twice("upstream name"),
        found,
    );
    unique(Snis, "name", d.snis.iter().map(|s| Some(s.name.as_str())), twice("server name"), found);
    let instances = d.plugins.iter().map(|p| p.instance_name.as_deref());
    unique(Plugins, "instance_name", instances, twice("instance name"), found);
    let targets = d.targets.iter().map(|t| Some((t.upstream, t.target.as_str())));
    let describe = |(_, target): &(_, &str)| format!("the target `{target}` is here twice; remove one");
    unique(Targets, "target", targets, describe, found);
    let keys = d.apisix_objects.iter().map(|object| Some(object.key.as_str()));
    unique(ApisixObjects, "key", keys, twice("key"), found);
    let authorities = d.ca_certificates.iter().map(|c| Some(c.cert.trim()));
    let describe = |_: &&str| "the same certificate is here twice; remove one".to_owned();
    unique(CaCertificates, "cert", authorities, describe, found);
    let prefixes = d.vaults.iter().map(|vault| Some(vault.prefix.as_str()));
    unique(Vaults, "prefix", prefixes, twice("prefix of a vault"), found);
    unique(KeySets, "name", d.key_sets.iter().map(|set| set.name.as_deref()), twice("key set"), found);
    unique(Keys, "name", d.keys.iter().map(|key| key.name.as_deref()), twice("key name"), found);
    let keys = d.keys.iter().map(|key| Some((key.set, key.kid.as_str())));
    let describe =
        |(_, kid): &(_, &str)| format!("the key `{kid}` is here twice in the same set; remove one");
    unique(Keys, "kid", keys, describe, found);
}

/// What must be unique among the entities that plugins declare, as the Admin API has it.
fn custom(document: &Document, found: &mut Vec<EntityError>) {
    for (kind, list) in document.custom.iter() {
        let mut first: HashMap<Unique, usize> = HashMap::with_capacity(list.len());
        for (index, entity) in list.iter().enumerate() {
            for unique in entity.unique_values() {
                match first.get(&unique) {
                    None => drop(first.insert(unique, index)),
                    Some(earlier) => {
                        let (field, message) = here_twice(kind, &unique);
                        found.push(EntityError {
                            earlier: Some((Custom(kind), *earlier)),
                            ..EntityError::new((Custom(kind), index), field, message)
                        });
                    }
                }
            }
        }
    }
}

/// Of values that another entity has: the last of their fields, and the message, which quotes no secret.
fn here_twice(kind: CustomKind, unique: &Unique) -> (&'static str, String) {
    let Some((field, value)) = unique.0.last() else { return ("", String::new()) };
    let advice = if unique.0.len() == 1 { "choose another" } else { "remove one" };
    let is_confidential = kind.schema().record.field(field).is_some_and(|field| field.is_confidential());
    if is_confidential {
        return (field, format!("the same {field} is here twice; {advice}"));
    }
    let shown = value.as_str().or_else(|| value.get("id")?.as_str()).map(Cow::Borrowed);
    let shown = shown.unwrap_or_else(|| value.to_string().into());
    (field, format!("the {field} `{}` is here twice; {advice}", quoted(&shown)))
}

/// One configuration of a plugin for each scope.
fn scopes(document: &Document, found: &mut Vec<EntityError>) {
    let scopes = document.plugins.iter();
    let scopes = scopes.map(|p| Some((p.name.as_str(), p.route, p.service, p.consumer, p.consumer_group)));
    let describe = |(name, ..): &(&str, _, _, _, _)| {
        format!("the plugin `{name}` is here twice for the same scope; remove one")
    };
    unique(Plugins, "name", scopes, describe, found);
}

/// Plugins that share no protocol with the routes they are for never run. That is refused on a route, and of a plugin that
/// authenticates also on a service, because the service would seem protected.
fn protocols(document: &Document, plugins: &[PluginSchema], found: &mut Vec<EntityError>) {
    found.extend(mismatches(document, |plugin| (true, authenticates(plugin, plugins))));
}

/// The plugins of services that never run, beside those that are refused.
fn idle_plugins(document: &Document, plugins: &[PluginSchema]) -> Vec<EntityError> {
    mismatches(document, |plugin| (false, !authenticates(plugin, plugins)))
}

fn authenticates(plugin: &Plugin, plugins: &[PluginSchema]) -> bool {
    find_plugin(plugins, &plugin.name).is_some_and(|schema| !schema.for_consumers)
}

/// Plugins whose protocols are not those of their route, or of no route of their service. `looked_at` says of a plugin
/// whether its route and its service are compared.
fn mismatches(document: &Document, looked_at: impl Fn(&Plugin) -> (bool, bool)) -> Vec<EntityError> {
    let routes: HashMap<Uuid, &Route> = document.routes.iter().map(|route| (route.id, &**route)).collect();
    let mut of_service: HashMap<Uuid, Vec<&Route>> = HashMap::new();
    for route in &document.routes {
        if let Some(service) = route.service {
            of_service.entry(service).or_default().push(route);
        }
    }
    let mut found = Vec::new();
    for (index, plugin) in document.plugins.iter().enumerate() {
        let (at_route, at_service) = looked_at(plugin);
        let route = plugin.route.filter(|_| at_route).and_then(|id| routes.get(&id).copied());
        let service = plugin.service.filter(|_| at_service).and_then(|id| of_service.get(&id));
        let mismatch = protocols_match(plugin, route, service.into_iter().flatten().copied()).err();
        found.extend(mismatch.map(|message| EntityError::new((Plugins, index), "protocols", message)));
    }
    found
}

/// Whether a plugin runs for its route, and for one of its service's routes at least, where it has any.
///
/// # Errors
/// What its `protocols` must be.
pub fn protocols_match<'r>(
    plugin: &Plugin,
    route: Option<&Route>,
    of_service: impl IntoIterator<Item = &'r Route>,
) -> Result<(), &'static str> {
    let shared = |route: &Route| route.protocols.iter().any(|it| plugin.protocols.contains(it));
    if route.is_some_and(|route| !shared(route)) {
        return Err("must match the associated route's protocols");
    }
    let mut of_service = of_service.into_iter().peekable();
    if of_service.peek().is_some() && !of_service.any(shared) {
        return Err("must match the protocols of at least one route pointing to this Plugin's service");
    }
    Ok(())
}

/// What an enabled plugin shares its counters by, if it does: the field, and its value.
fn shared_by<'p>(plugin: &'p Plugin, plugins: &[PluginSchema]) -> Option<(&'static str, &'p str)> {
    let field = find_plugin(plugins, &plugin.name)?.shared_by.filter(|_| plugin.enabled)?;
    Some((field, plugin.config.get(field)?.as_str()?))
}

/// What shares counters has to be configured alike.
fn shared_counters(document: &Document, plugins: &[PluginSchema], found: &mut Vec<EntityError>) {
    let mut first: HashMap<(&str, &str), usize> = HashMap::new();
    for (index, plugin) in document.plugins.iter().enumerate() {
        let Some((field, value)) = shared_by(plugin, plugins) else { continue };
        let earlier = *first.entry((&plugin.name, value)).or_insert(index);
        if let Some(message) = mismatch(plugin, &document.plugins[earlier], plugins) {
            let earlier = Some((Plugins, earlier));
            let path = format!("config.{field}");
            found.push(EntityError { earlier, ..EntityError::new((Plugins, index), path, message) });
        }
    }
}

/// Whether a plugin is configured as the others are that it shares its counters with; if not, the field that it shares
/// them by, and what is wrong.
///
/// # Errors
/// How it must be configured.
pub fn matches_shared(
    plugin: &Plugin,
    entities: &Entities,
    plugins: &[PluginSchema],
) -> Result<(), (&'static str, String)> {
    let Some((field, _)) = shared_by(plugin, plugins) else { return Ok(()) };
    let others = entities.after(Plugins, None).filter_map(|entity| match entity {
        Entity::Plugins(other) => Some(other),
        _ => None,
    });
    let found = others.filter_map(|other| Some((other.id, mismatch(plugin, other, plugins)?))).next();
    found.map_or(Ok(()), |(id, message)| Err((field, format!("{message} (the other is plugin {id})"))))
}

/// What is wrong with two plugins that share counters; without the values, which may be secret.
fn mismatch(plugin: &Plugin, other: &Plugin, plugins: &[PluginSchema]) -> Option<String> {
    let (field, value) = shared_by(plugin, plugins)?;
    let is_shared = plugin.name == other.name && shared_by(other, plugins) == Some((field, value));
    if !is_shared || plugin.config == other.config {
        return None;
    }
    let fields = [plugin, other].into_iter().filter_map(|it| it.config.as_object()).flat_map(|it| it.keys());
    let differ: BTreeSet<_> = fields.filter(|name| plugin.config[*name] != other.config[*name]).collect();
    let differ: Vec<_> = differ.into_iter().map(|name| format!("`{name}`")).collect();
    let (name, value, differ) = (&plugin.name, quoted(value), differ.join(", "));
    Some(format!(
        "{field} conf mismatched: another {name} of the {field} `{value}` has another {differ}; \
         they count together, so write the same configuration in both, or another `{field}` here"
    ))
}
