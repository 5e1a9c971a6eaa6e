//! What may be written in another way: a service's `url`, a certificate's `snis` as strings, who is in a consumer group,
//! and the paths of files older than format 3.0. Rewritten in the tree, so that all else reads one form.
use super::tree::syntax;
use crate::entity::EntityKind;
use crate::node::{Entry, Node, Origin, Position, Value};
use crate::rule;
use crate::schema::{Choice, Problem};

/// Rewrites every shorthand. `old_paths`: regexes are not marked by `~` yet.
pub(super) fn rewrite(root: &mut Node<'_>, old_paths: bool, problems: &mut Vec<Problem>) {
    each(root, "services", &mut |service| rewrite_service(service, old_paths, problems));
    each(root, "certificates", &mut |certificate| {
        each(certificate, "services", &mut |service| rewrite_service(service, old_paths, problems));
        each(certificate, "snis", &mut name_sni);
    });
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

fn rewrite_service(service: &mut Node<'_>, old_paths: bool, problems: &mut Vec<Problem>) {
    split_url(service, problems);
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

/// Puts protocol, host, port and path in the place of `url`, which wins over any of these.
pub(crate) fn split_url(service: &mut Node<'_>, problems: &mut Vec<Problem>) {
    let Value::Map(entries) = &mut service.value else { return };
    let Some(url) = entries.iter().position(|entry| entry.key == "url") else { return };
    let url = entries.remove(url);
    if url.node.value == Value::Null {
        return;
    }
    let Some(parts) = url.node.as_str().and_then(Url::parse) else {
        // One that a variable is missing from has been reported.
        if problems.iter().all(|problem| problem.at != url.node.at) {
            let message = "expected a URL such as http://example.com:8080/path in `url`, without user, password, query \
                           and fragment";
            problems.push(syntax(url.node.at, message));
        }
        // So that no host is missed: what was said of the URL is enough, and it may hold a password.
        entries.push(text_entry("host", "url", url.node.at, Origin::Quoted));
        return;
    };
    let origin = if let Value::Str(_, origin) = url.node.value { origin } else { Origin::Quoted };
    let at = url.node.at;
    entries.retain(|entry| !matches!(entry.key.as_ref(), "protocol" | "host" | "port" | "path"));
    entries.push(text_entry("protocol", parts.scheme, at, origin));
    entries.push(text_entry("host", parts.host, at, origin));
    entries.push(Entry { key: "port".into(), at, node: Node::new(Value::Int(parts.port), at) });
    entries.extend(parts.path.map(|path| text_entry("path", path, at, origin)));
}

fn text_entry(key: &'static str, text: &str, at: Position, origin: Origin) -> Entry<'static> {
    let node = Node::new(Value::Str(text.to_owned().into(), origin), at);
    Entry { key: key.into(), at, node }
}

struct Url<'u> {
    scheme: &'u str,
    host: &'u str,
    port: i64,
    path: Option<&'u str>,
}

impl<'u> Url<'u> {
    fn parse(text: &'u str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let path = rest.find('/').map(|at| &rest[at..]);
        let authority = &rest[..rest.len() - path.map_or(0, str::len)];
        if authority.is_empty() || text.contains(['?', '#', '@']) {
            return None;
        }
        let default = if scheme == "https" { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !authority.ends_with(']') => (host, port.parse::<u16>().ok()?.into()),
            _ => (authority, default),
        };
        Some(Url { scheme, host, port, path })
    }
}
