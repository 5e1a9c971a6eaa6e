//! Computes the hash key of a request: from `hash_on`, else from `hash_fallback`.

use super::ring::hash;
use std::borrow::Cow;
use std::net::IpAddr;
use uuid::Uuid;
use weir_http1::Headers;
use weir_model::entity::{HashOn, Upstream};

/// The inputs of a request that can be hashed.
pub trait HashSource {
    /// The id of its consumer, or else of the credential that it came with.
    fn consumer(&self) -> Option<Uuid>;
    /// The client's address.
    fn client_ip(&self) -> IpAddr;
    /// The path, as routes match it.
    fn path(&self) -> &str;
    /// Its fields.
    fn headers(&self) -> &Headers;
    /// The values of a query argument, decoded.
    fn query_values(&self, name: &str) -> Vec<Cow<'_, [u8]>>;
    /// What a group of the route's regex captured.
    fn uri_capture(&self, name: &str) -> Option<&str>;
}

/// The inputs that are hashed, in the order in which they are tried.
pub(super) struct Inputs(Vec<Input>);

enum Input {
    Consumer,
    Ip,
    Header(String),
    Cookie { name: String, path: String },
    Path,
    QueryArg(String),
    UriCapture(String),
}

/// The hash of a request.
pub struct Key {
    /// The hash that selects the target.
    pub hash: u64,
    /// The `Set-Cookie` that makes the client's next requests hash alike.
    pub cookie: Option<String>,
}

impl Inputs {
    pub(super) fn of(upstream: &Upstream) -> Inputs {
        let u = upstream;
        let cookie = (&u.hash_on_cookie, &u.hash_on_cookie_path);
        let first =
            input(u.hash_on, [&u.hash_on_header, &u.hash_on_query_arg, &u.hash_on_uri_capture], cookie);
        let fallback = [&u.hash_fallback_header, &u.hash_fallback_query_arg, &u.hash_fallback_uri_capture];
        Inputs(first.into_iter().chain(input(u.hash_fallback, fallback, cookie)).collect())
    }

    /// The hash of the first of these that the request has. None has the request take the next turn.
    pub(super) fn key(&self, request: &impl HashSource) -> Option<Key> {
        self.0.iter().find_map(|input| input.key(request))
    }

    /// The hash of a client's address, where that is an input.
    pub(super) fn of_address(&self, client: IpAddr) -> Option<u64> {
        let asked = self.0.iter().any(|input| matches!(input, Input::Ip));
        asked.then(|| hash(client.to_string().as_bytes()))
    }
}

fn input(
    on: HashOn,
    [header, query_arg, capture]: [&Option<String>; 3],
    (cookie, path): (&Option<String>, &Option<String>),
) -> Option<Input> {
    Some(match on {
        HashOn::None => return None,
        HashOn::Consumer => Input::Consumer,
        HashOn::Ip => Input::Ip,
        HashOn::Path => Input::Path,
        HashOn::Header => Input::Header(header.clone()?),
        HashOn::QueryArg => Input::QueryArg(query_arg.clone()?),
        HashOn::UriCapture => Input::UriCapture(capture.clone()?),
        HashOn::Cookie => {
            Input::Cookie { name: cookie.clone()?, path: path.clone().unwrap_or_else(|| "/".to_owned()) }
        }
    })
}

impl Input {
    fn key(&self, request: &impl HashSource) -> Option<Key> {
        let headers = request.headers();
        let hash = match self {
            Input::Consumer => hash(request.consumer()?.as_bytes()),
            Input::Ip => hash(request.client_ip().to_string().as_bytes()),
            Input::Path => hash(request.path().as_bytes()),
            Input::Header(name) => together(headers.get_all(name), b", ")?,
            Input::QueryArg(name) => query_arg(request.query_values(name))?,
            Input::UriCapture(name) => hash(request.uri_capture(name)?.as_bytes()),
            Input::Cookie { name, path } => match cookie(headers, name) {
                Some(value) => hash(value),
                None => return Some(new_cookie(name, path)),
            },
        };
        Some(Key { hash, cookie: None })
    }
}

/// The hash of several values, as of one list.
fn together<'v>(values: impl Iterator<Item = &'v [u8]>, between: &[u8]) -> Option<u64> {
    let values: Vec<&[u8]> = values.collect();
    (!values.is_empty()).then(|| hash(&values.join(between)))
}

/// The hash of an argument's values, whatever their order.
fn query_arg(mut values: Vec<Cow<'_, [u8]>>) -> Option<u64> {
    values.sort_unstable();
    together(values.iter().map(|value| &**value), b",")
}

/// The value of a cookie. An empty one counts.
fn cookie<'h>(headers: &'h Headers, name: &str) -> Option<&'h [u8]> {
    headers.get_all("Cookie").flat_map(|cookies| cookies.split(|byte| *byte == b';')).find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    })
}

fn new_cookie(name: &str, path: &str) -> Key {
    let value = Uuid::new_v4().to_string();
    let cookie = format!("{name}={value}; Path={path}; SameSite=Lax; HttpOnly");
    Key { hash: hash(value.as_bytes()), cookie: Some(cookie) }
}
