//! Kong's rules, one route after the other.
use super::Request;
use crate::Calculation;
use regex::Regex;
use weir_model::Uuid;
use weir_model::entity::{Protocol, Route};

/// What should be found: the route's position, the length of path matched, the groups of the regex.
pub(super) type Expected = Option<(usize, usize, Option<Vec<Option<String>>>)>;

/// Every route, or part of one, in descending order of priority and id.
pub(super) struct Reference<'a>(Vec<Part<'a>>);

impl<'a> Reference<'a> {
    pub(super) fn new(routes: &'a [Route], calculation: Calculation) -> Reference<'a> {
        let mut parts: Vec<Part<'_>> = Vec::new();
        for (index, route) in routes.iter().enumerate() {
            let stream = [Protocol::Tcp, Protocol::Tls, Protocol::TlsPassthrough, Protocol::Udp];
            if !route.protocols.first().is_some_and(|first| stream.contains(first)) {
                parts.extend(split(index, route, calculation));
            }
        }
        parts.sort_by_key(|part| std::cmp::Reverse((part.priority, part.id)));
        Reference(parts)
    }

    pub(super) fn find(&self, request: &Request) -> Expected {
        self.0.iter().find_map(|part| part.matches(request))
    }
}

struct Part<'a> {
    index: usize,
    route: &'a Route,
    id: Uuid,
    paths: Vec<Path<'a>>,
    headers: Vec<(String, Vec<HeaderValue>)>,
    priority: u64,
}

enum HeaderValue {
    Exact(String),
    Regex(Regex),
}

impl HeaderValue {
    fn compile(value: &str) -> HeaderValue {
        let value = value.to_lowercase();
        match value.strip_prefix("~*") {
            Some(pattern) => HeaderValue::Regex(Regex::new(pattern).unwrap()),
            None => HeaderValue::Exact(value),
        }
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            HeaderValue::Exact(exact) => value == exact,
            HeaderValue::Regex(regex) => regex.is_match(value),
        }
    }
}

fn compile_headers(route: &Route) -> Vec<(String, Vec<HeaderValue>)> {
    let headers = route.headers.iter().flatten();
    headers
        .map(|(name, values)| {
            let values = values.iter().map(|value| HeaderValue::compile(value)).collect();
            (name.to_lowercase().replace('_', "-"), values)
        })
        .collect()
}

enum Path<'a> {
    Prefix(&'a str),
    Regex(Regex),
}

impl Path<'_> {
    fn compile(path: &str) -> Path<'_> {
        match path.strip_prefix('~') {
            Some(pattern) => Path::Regex(Regex::new(&format!("^{pattern}")).unwrap()),
            None => Path::Prefix(path),
        }
    }
}

fn split(index: usize, route: &Route, calculation: Calculation) -> Vec<Part<'_>> {
    let key = |path: &str| if path.starts_with('~') { 0 } else { path.len() };
    let paths = route.paths.as_deref().unwrap_or_default();
    let mut keys: Vec<usize> = Vec::new();
    for path in paths {
        if !keys.contains(&key(path)) {
            keys.push(key(path));
        }
    }
    if keys.len() < 2 {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let priority = priority(route, &paths, calculation);
        let paths = paths.into_iter().map(Path::compile).collect();
        return vec![Part { index, route, id: route.id, paths, headers: compile_headers(route), priority }];
    }
    let namespace: Uuid = "7f145bf9-0dce-4f91-98eb-debbce4b9f6b".parse().unwrap();
    let part = |(position, wanted): (usize, &usize)| {
        let paths: Vec<&str> = paths.iter().map(String::as_str).filter(|path| key(path) == *wanted).collect();
        let id = Uuid::new_v5(&namespace, format!("{}#{}", route.id, position + 1).as_bytes());
        let priority = priority(route, &paths, calculation);
        let paths = paths.into_iter().map(Path::compile).collect();
        Part { index, route, id, paths, headers: compile_headers(route), priority }
    };
    keys.iter().enumerate().map(part).collect()
}

/// LuaJIT's `lshift` of a number that is no `cdata`, as an operand of a 64-bit `bor`.
fn luajit_shift(value: i64, bits: u32) -> u64 {
    let shifted = (value as u32) << (bits % 32);
    shifted as i32 as i64 as u64
}

fn priority(route: &Route, paths: &[&str], calculation: Calculation) -> u64 {
    let filled = |values: &Option<Vec<String>>| values.as_ref().is_some_and(|values| !values.is_empty());
    let headers = route.headers.as_ref().map_or(0, |headers| headers.len());
    let mut weight = 0;
    weight += i64::from(filled(&route.methods));
    weight += i64::from(filled(&route.hosts));
    weight += i64::from(filled(&route.snis));
    weight += i64::from(headers > 0);
    weight += i64::from(!paths.is_empty());
    let plain = filled(&route.hosts) && !route.hosts.iter().flatten().any(|host| host.contains('*'));
    let regex = paths.first().is_some_and(|path| path.starts_with('~'));
    let length = if regex { 0 } else { paths.first().map_or(0, |path| path.len()) };
    let flags = (u64::from(plain) << 60) | (u64::from(regex) << 51) | (length as u64 & 0x7FFFF);
    let regex_priority = if regex { route.regex_priority } else { 0 };
    let headers = headers.min(255) as i64;
    match calculation {
        Calculation::Original => {
            flags | luajit_shift(weight, 61) | luajit_shift(headers, 52) | luajit_shift(regex_priority, 19)
        }
        Calculation::Strict => {
            let ordered = if regex { (regex_priority + (1 << 31)) as u64 } else { 0 };
            flags | (weight as u64) << 61 | (headers as u64) << 52 | ordered << 19
        }
    }
}

impl Part<'_> {
    fn matches(&self, request: &Request) -> Expected {
        let route = self.route;
        let none = |values: &Option<Vec<String>>| values.as_ref().is_none_or(|values| values.is_empty());
        let ok = (none(&route.methods) || route.methods.iter().flatten().any(|m| *m == request.method))
            && (none(&route.hosts) || route.hosts.iter().flatten().any(|host| host_matches(host, request)))
            && (none(&route.snis)
                || !request.https
                || route.snis.iter().flatten().any(|sni| sni_matches(sni, request)))
            && self.headers.iter().all(|(name, wanted)| {
                let values = request.headers.get(name).into_iter().flatten();
                values.into_iter().any(|value| wanted.iter().any(|w| w.matches(&value.to_lowercase())))
            });
        if ok { self.path_matches(&request.path) } else { None }
    }

    fn path_matches(&self, path: &str) -> Expected {
        if self.paths.is_empty() {
            return Some((self.index, path.len().min(1), None));
        }
        self.paths.iter().find_map(|wanted| match wanted {
            Path::Prefix(prefix) => path.starts_with(prefix).then_some((self.index, prefix.len(), None)),
            Path::Regex(regex) => {
                let captures = regex.captures(path)?;
                let groups =
                    captures.iter().map(|group| group.map(|text| text.as_str().to_owned())).collect();
                Some((self.index, captures[0].len(), (captures.len() > 1).then_some(groups)))
            }
        })
    }
}

fn split_port(host: &str) -> (String, Option<u64>) {
    let lower = host.to_lowercase();
    match lower.find(':') {
        Some(colon) => match lower[colon + 1..].parse() {
            Ok(port) => (lower[..colon].to_owned(), Some(port)),
            Err(_) => (lower, None),
        },
        None => (lower, None),
    }
}

fn host_matches(host: &str, request: &Request) -> bool {
    let (wanted, wanted_port) = split_port(host);
    let (name, port) = split_port(&request.host);
    let port = port.unwrap_or(u64::from(request.port));
    wildcard_matches(&wanted, &name) && wanted_port.is_none_or(|wanted| wanted == port)
}

fn wildcard_matches(wanted: &str, name: &str) -> bool {
    match (wanted.strip_prefix('*'), wanted.strip_suffix('*')) {
        // The DNS knows no longer names.
        _ if name.is_empty() || name.len() > 255 => false,
        (Some(suffix), _) => name.ends_with(suffix),
        (None, Some(prefix)) => name.starts_with(prefix),
        (None, None) => name == wanted,
    }
}

fn sni_matches(sni: &str, request: &Request) -> bool {
    request.sni.as_ref().is_some_and(|name| wildcard_matches(sni.strip_suffix('.').unwrap_or(sni), name))
}
