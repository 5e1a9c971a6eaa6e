//! What may be written in another way: a service's `url`, a certificate's `snis` as strings, who is in a consumer group,
//! and the paths of files older than format 3.0. Rewritten in the tree, so that all else reads one form.
use crate::entity::EntityKind;
use crate::node::{Entry, Node, Origin, Position, Value};
use crate::rule;
use crate::schema::{Choice, Problem, quoted};

/// What was found on the way.
#[derive(Default)]
pub(super) struct Found {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
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
    let placed =
        |problem: Problem| Problem { path: format!("{within}services[{index}].{}", problem.path), ..problem };
    match split_url(service) {
        Ok(unheeded) => found.warnings.extend(unheeded.into_iter().map(placed)),
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

/// The fields that a `url` stands for.
const OF_URL: [&str; 4] = ["protocol", "host", "port", "path"];

/// Puts protocol, host, port and path in the place of `url`, which wins over any of these: over which, is said.
///
/// # Errors
/// Where the URL is none.
pub(crate) fn split_url(service: &mut Node<'_>) -> Result<Vec<Problem>, Problem> {
    let Value::Map(entries) = &mut service.value else { return Ok(Vec::new()) };
    let Some(url) = entries.iter().position(|entry| entry.key == "url") else { return Ok(Vec::new()) };
    let Node { value, at } = entries.remove(url).node;
    let (text, origin) = match &value {
        Value::Null => return Ok(Vec::new()),
        Value::Str(text, origin) => (text.as_ref(), *origin),
        _ => ("", Origin::Quoted),
    };
    let parts = match Url::parse(text, origin) {
        Ok(parts) => parts,
        Err(message) => {
            // So that no host is missed: what is said of the URL is enough, and it may hold a password.
            entries.push(text_entry("host", "url", at, Origin::Quoted));
            return Err(Problem { at, path: "url".to_owned(), message });
        }
    };
    let is_unheeded = |entry: &mut Entry<'_>| OF_URL.contains(&entry.key.as_ref());
    let unheeded = entries.extract_if(.., is_unheeded).filter(|entry| entry.node.value != Value::Null);
    // A protocol such as `ws` stands beside the URLs of widely used files, and says nothing else than they do.
    let unheeded = unheeded.filter(|entry| entry.key != "protocol").map(|entry| Problem {
        at: entry.at,
        path: entry.key.to_string(),
        message: "without effect beside `url`, which wins; leave one of them out".to_owned(),
    });
    let unheeded = unheeded.collect();
    entries.push(text_entry("protocol", parts.scheme, at, origin));
    entries.push(text_entry("host", parts.host, at, origin));
    entries.push(Entry { key: "port".into(), at, node: Node::new(Value::Int(parts.port), at) });
    entries.extend(parts.path.map(|path| text_entry("path", path, at, origin)));
    Ok(unheeded)
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
    /// The parts, or what is wrong and how to mend it; a password is not repeated, nor what comes from the environment.
    fn parse(text: &'u str, origin: Origin) -> Result<Self, String> {
        if text.contains('@') {
            return Err(
                "a service's `url` has no user and no password; leave out what stands before the `@`"
                    .to_owned(),
            );
        }
        if text.contains(['?', '#']) {
            return Err(
                "a service's `url` has no query and no fragment; leave out what begins with `?` or `#`"
                    .to_owned(),
            );
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            let hint = match origin {
                Origin::Quoted | Origin::Plain if !text.is_empty() => {
                    format!(" with its scheme; write http://{}", quoted(text))
                }
                _ => " such as http://example.com:8080/path".to_owned(),
            };
            return Err(format!("expected a URL{hint}"));
        };
        let path = rest.find('/').map(|at| &rest[at..]);
        let authority = &rest[..rest.len() - path.map_or(0, str::len)];
        let default = if scheme == "https" { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !authority.ends_with(']') => {
                (host, port.parse::<u16>().ok().map(i64::from))
            }
            _ => (authority, Some(default)),
        };
        let Some(port) = port else {
            return Err(
                "expected a whole number between 0 and 65535 as the port, behind the last `:`".to_owned()
            );
        };
        if host.is_empty() {
            return Err("expected a host behind `://`, as in http://example.com:8080/path".to_owned());
        }
        Ok(Url { scheme, host, port, path })
    }
}
