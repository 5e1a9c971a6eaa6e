//! What may be written in another way: a service's `url`, a certificate's `snis` as strings, who is in a consumer group,
//! and the paths of files older than format 3.0. Rewritten in the tree, so that all else reads one form.
use crate::entity::EntityKind;
use crate::node::{Entry, Node, Origin, Value};
use crate::rule;
use crate::schema::ConfigError;
use crate::service_url::split_url;
use uuid::Uuid;

/// What was found on the way.
#[derive(Default)]
pub(super) struct Found {
    pub(super) problems: Vec<ConfigError>,
    pub(super) warnings: Vec<ConfigError>,
}

/// Rewrites every shorthand. `old_paths`: regexes are not marked by `~` yet.
pub(super) fn rewrite(root: &mut Node<'_>, old_paths: bool, found: &mut Found) {
    let mut index = 0;
    each(root, "services", &mut |service| {
        rewrite_service(service, ("", index), old_paths, found);
        index += 1;
    });
    let mut place = 0;
    each(root, "certificates", &mut |certificate| {
        let (within, mut index) = (format!("certificates[{place}]."), 0);
        each(certificate, "services", &mut |service| {
            rewrite_service(service, (&within, index), old_paths, found);
            index += 1;
        });
        place += 1;
        each(certificate, "snis", &mut name_sni);
    });
    for collection in ["services", "upstreams"] {
        each(root, collection, &mut identify_certificate);
    }
    for kind in [EntityKind::Consumers, EntityKind::ConsumerGroups] {
        let Some((members, field)) = kind.members() else { continue };
        each(root, kind.as_str(), &mut |of| each(of, members, &mut |named| name_member(named, field)));
    }
    if old_paths {
        each(root, "routes", &mut mark_regexes);
    }
}

/// What decK writes beside the name is about who is named.
const OF_THE_NAMED: [&str; 3] = ["tags", "created_at", "updated_at"];

/// An element of `groups: [{name: gold}]` of a consumer, or of `consumers: [{username: ann}]` of a group.
fn name_member(named: &mut Node<'_>, field: &'static str) {
    match &mut named.value {
        Value::Map(entries) => {
            let has_name = entries.iter().any(|entry| matches!(entry.key.as_ref(), "name" | "username"));
            entries.retain(|entry| {
                let is_said = has_name && entry.key == "id";
                !is_said && !OF_THE_NAMED.contains(&entry.key.as_ref())
            });
            let name = entries.iter_mut().find(|it| matches!(it.key.as_ref(), "name" | "username" | "id"));
            if let Some(name) = name {
                name.key = field.into();
            }
        }
        Value::Str(..) => {
            let name = Entry { key: field.into(), at: named.at, node: named.clone() };
            named.value = Value::Map(vec![name]);
        }
        _ => {}
    }
}

fn rewrite_service(
    service: &mut Node<'_>,
    (within, index): (&str, usize),
    old_paths: bool,
    found: &mut Found,
) {
    let placed = |problem: ConfigError| ConfigError {
        path: format!("{within}services[{index}].{}", problem.path),
        ..problem
    };
    match split_url(service) {
        Ok(ignored) => found.warnings.extend(ignored.into_iter().map(placed)),
        // One that a variable is missing from has been reported.
        Err(problem) if found.problems.iter().any(|earlier| earlier.at == problem.at) => {}
        Err(problem) => found.problems.push(placed(problem)),
    }
    if old_paths {
        each(service, "routes", &mut mark_regexes);
    }
}

fn each<'a>(node: &mut Node<'a>, collection: &str, rewrite: &mut dyn FnMut(&mut Node<'a>)) {
    let Value::Map(entries) = &mut node.value else { return };
    let Some(entry) = entries.iter_mut().find(|entry| entry.key == collection) else { return };
    if let Value::List(elements) = &mut entry.node.value {
        elements.iter_mut().for_each(rewrite);
    }
}

/// Gives a certificate that is written in the place of a reference an id, by which the reference then names it.
fn identify_certificate(of: &mut Node<'_>) {
    let Value::Map(entries) = &mut of.value else { return };
    let Some(entry) = entries.iter_mut().find(|entry| entry.key == "client_certificate") else { return };
    let Some(cert) = entry.node.get("cert").and_then(Node::as_str).map(str::to_owned) else { return };
    let (at, has_id) = (entry.node.at, entry.node.get("id").is_some());
    if let Value::Map(members) = &mut entry.node.value
        && !has_id
    {
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, cert.as_bytes()).to_string();
        let node = Node::new(Value::Str(id.into(), Origin::Quoted), at);
        members.retain(|member| member.key != "id");
        members.push(Entry { key: "id".into(), at, node });
    }
}

fn name_sni(sni: &mut Node<'_>) {
    if let Value::Str(..) = sni.value {
        let name = Entry { key: "name".into(), at: sni.at, node: sni.clone() };
        sni.value = Value::Map(vec![name]);
    }
}

/// Formats 1.1 and 2.1 took a path for a regex when it held unusual characters.
fn mark_regexes(route: &mut Node<'_>) {
    each(route, "paths", &mut |path| {
        if let Value::Str(text, _) = &mut path.value
            && !text.starts_with('~')
            && rule::looks_like_regex(text)
        {
            text.to_mut().insert(0, '~');
        }
    });
}
