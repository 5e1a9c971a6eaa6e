//! Requests as bytes: templates are taken apart once, and put together for each request without allocating.
use super::distribution::{Alias, MAX_TABULATED, Sampler};
use super::{Distribution, Expect, LoadError, Plan, Protocol, RequestTemplate, Values, Variable};
use fastrand::Rng;
use std::io::Write;
use weir_http1::Method;

/// A plan's requests, ready to be drawn from by any number of threads.
#[derive(Debug)]
pub(super) struct Requests {
    templates: Vec<Template>,
    variables: Vec<Source>,
    /// Chooses a template by weight; nothing where there is but one.
    choice: Option<Alias>,
}

/// A template taken apart.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) method: Method,
    pub(super) expect: Expect,
    head: Vec<Piece>,
    body: Vec<Piece>,
    /// The variables to draw, those first whose index others take over.
    draws: Vec<usize>,
    /// The whole request and the length of its head, where it is always the same.
    fixed: Option<(Vec<u8>, usize)>,
}

#[derive(Debug, PartialEq)]
enum Piece {
    Text(Vec<u8>),
    Variable(usize),
    /// The body's length, where that depends on variables.
    BodyLength,
}

#[derive(Debug)]
struct Source {
    values: Values,
    sampler: Sampler,
    with: Option<usize>,
}

/// A request that was drawn, as HTTP/1.1 writes it.
#[derive(Clone, Copy)]
pub(super) struct Drawn<'s> {
    /// The number of its template.
    pub(super) template: usize,
    pub(super) bytes: &'s [u8],
    /// How many of the bytes are its head.
    head: usize,
}

impl<'s> Drawn<'s> {
    pub(super) fn head(&self) -> &'s [u8] {
        &self.bytes[..self.head]
    }

    pub(super) fn body(&self) -> &'s [u8] {
        &self.bytes[self.head..]
    }
}

/// Draws the requests of one thread.
pub(super) struct Stream<'a> {
    requests: &'a Requests,
    rng: Rng,
    samplers: Vec<Sampler>,
    indices: Vec<usize>,
    bytes: Vec<u8>,
    body: Vec<u8>,
}

impl Requests {
    pub(super) fn new(plan: &Plan) -> Result<Requests, LoadError> {
        let templates = &plan.requests.templates;
        if templates.iter().all(|template| template.weight == 0) {
            return Err(LoadError::Plan("no request is given: name at least one, with a weight".to_owned()));
        }
        let variables = sources(&plan.requests.variables)?;
        let weights = templates.iter().map(|template| f64::from(template.weight)).collect();
        let choice = (templates.len() > 1).then(|| Alias::new(weights));
        let templates = templates.iter().map(|template| taken_apart(template, plan, &variables));
        Ok(Requests { templates: templates.collect::<Result<_, _>>()?, variables, choice })
    }

    /// Whether requests differ from each other.
    pub(super) fn vary(&self) -> bool {
        self.templates.iter().any(|template| template.fixed.is_none())
    }

    pub(super) fn template(&self, index: usize) -> &Template {
        &self.templates[index]
    }

    /// The requests of one thread of several.
    pub(super) fn stream(&self, seed: u64, thread: usize, threads: usize) -> Stream<'_> {
        Stream {
            requests: self,
            rng: Rng::with_seed(seed),
            samplers: self.variables.iter().map(|it| it.sampler.for_thread(thread, threads)).collect(),
            indices: vec![0; self.variables.len()],
            bytes: Vec::new(),
            body: Vec::new(),
        }
    }
}

impl Stream<'_> {
    /// The next request.
    pub(super) fn next(&mut self) -> Drawn<'_> {
        let chosen = self.requests.choice.as_ref().map_or(0, |choice| choice.draw(&mut self.rng));
        let template = &self.requests.templates[chosen];
        if let Some((bytes, head)) = &template.fixed {
            return Drawn { template: chosen, bytes, head: *head };
        }
        for variable in &template.draws {
            self.indices[*variable] = match self.requests.variables[*variable].with {
                Some(other) => self.indices[other],
                None => self.samplers[*variable].draw(&mut self.rng),
            };
        }
        self.body.clear();
        self.requests.write(&template.body, &self.indices, 0, &mut self.body);
        self.bytes.clear();
        self.requests.write(&template.head, &self.indices, self.body.len(), &mut self.bytes);
        let head = self.bytes.len();
        self.bytes.extend_from_slice(&self.body);
        Drawn { template: chosen, bytes: &self.bytes, head }
    }
}

impl Requests {
    fn write(&self, pieces: &[Piece], indices: &[usize], body_length: usize, out: &mut Vec<u8>) {
        for piece in pieces {
            // Writing to memory cannot fail.
            let _ = match piece {
                Piece::Text(text) => out.write_all(text),
                Piece::BodyLength => write!(out, "{body_length}"),
                Piece::Variable(variable) => match &self.variables[*variable].values {
                    Values::Numbers { first, .. } => write!(out, "{}", first + indices[*variable] as u64),
                    Values::Words(words) => out.write_all(words[indices[*variable]].as_bytes()),
                },
            };
        }
    }
}

fn sources(variables: &[Variable]) -> Result<Vec<Source>, LoadError> {
    let source = |(index, variable): (usize, &Variable)| {
        let count = count(variable)?;
        let with = variable.with.as_ref().map(|name| partner(variables, index, name, count)).transpose()?;
        Ok(Source {
            values: variable.values.clone(),
            sampler: Sampler::new(variable.distribution, count),
            with,
        })
    };
    variables.iter().enumerate().map(source).collect()
}

fn count(variable: &Variable) -> Result<usize, LoadError> {
    let name = &variable.name;
    let count = match &variable.values {
        Values::Numbers { first, count } if first.checked_add(*count).is_some() => *count as usize,
        Values::Numbers { .. } => {
            return Err(LoadError::Plan(format!("the numbers of {name:?} are too large")));
        }
        Values::Words(words) => words.len(),
    };
    match variable.distribution {
        _ if count == 0 => Err(LoadError::Plan(format!("the variable {name:?} has no values"))),
        Distribution::Zipf(_) if count > MAX_TABULATED => {
            Err(LoadError::Plan(format!("{name:?} has {count} values; Zipf takes {MAX_TABULATED} at most")))
        }
        Distribution::Zipf(exponent) if !(0.0..=100.0).contains(&exponent) => {
            Err(LoadError::Plan(format!("the exponent of {name:?} is {exponent}; it must be from 0 to 100")))
        }
        _ => Ok(count),
    }
}

/// The variable that another is drawn with. It must draw for itself, so that there is no circle.
fn partner(variables: &[Variable], index: usize, name: &str, count: usize) -> Result<usize, LoadError> {
    let own = &variables[index].name;
    let Some(partner) = variables.iter().position(|variable| variable.name == name) else {
        return Err(LoadError::Plan(format!("{own:?} is drawn with {name:?}, which is not declared")));
    };
    if variables[partner].with.is_some() {
        return Err(LoadError::Plan(format!("{own:?} is drawn with {name:?}, which is drawn with another")));
    }
    match self::count(&variables[partner])? {
        others if others > count => Err(LoadError::Plan(format!(
            "{own:?} is drawn with {name:?} and has {count} values, but needs {others} too"
        ))),
        _ => Ok(partner),
    }
}

fn taken_apart(template: &RequestTemplate, plan: &Plan, variables: &[Source]) -> Result<Template, LoadError> {
    check(template, plan)?;
    let body = pieces(&template.body, &plan.requests.variables);
    let head = head(template, plan, &body);
    let mut template = Template {
        method: Method::of(&template.method),
        expect: template.expect.clone(),
        draws: draws(&head, &body, variables),
        head,
        body,
        fixed: None,
    };
    if let ([] | [Piece::Text(_)], [] | [Piece::Text(_)]) = (&template.head[..], &template.body[..]) {
        let text = |pieces: &[Piece]| pieces.iter().flat_map(Piece::text).copied().collect::<Vec<_>>();
        let (head, body) = (text(&template.head), text(&template.body));
        template.fixed = Some(([head.as_slice(), &body].concat(), head.len()));
    }
    Ok(template)
}

impl Piece {
    fn text(&self) -> &[u8] {
        match self {
            Piece::Text(text) => text,
            _ => &[],
        }
    }
}

/// What cannot be sent as it is, or would be understood as something else.
fn check(template: &RequestTemplate, plan: &Plan) -> Result<(), LoadError> {
    let path = &template.path;
    if !path.starts_with('/') || path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(LoadError::Plan(format!("the path {path:?} must begin with / and be free of spaces")));
    }
    let needed = match plan.protocol {
        Protocol::Grpc { .. } => Some("POST"),
        Protocol::WebSocket => Some("GET"),
        Protocol::Http1 | Protocol::Http2 { .. } => None,
    };
    if let Some(needed) = needed.filter(|needed| *needed != template.method) {
        return Err(LoadError::Plan(format!("the method is {needed} there, not {}", template.method)));
    }
    if template.method.is_empty() || !template.method.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err(LoadError::Plan(format!("{:?} is not a method", template.method)));
    }
    let known = |name: &str| plan.requests.variables.iter().any(|variable| variable.name == name);
    if let Some(unknown) = names(path).find(|name| !known(name)) {
        return Err(LoadError::Plan(format!("the path {path:?} names {{{unknown}}}, which is not declared")));
    }
    let faulty = |text: &str| text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    let pairs = template.headers.iter();
    match pairs
        .clone()
        .find(|(name, value)| name.is_empty() || name.contains(':') || faulty(name) || faulty(value))
    {
        Some((name, _)) => Err(LoadError::Plan(format!("the header {name:?} cannot be sent"))),
        None => Ok(()),
    }
}

fn head(template: &RequestTemplate, plan: &Plan, body: &[Piece]) -> Vec<Piece> {
    let has = |name: &str| template.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    let mut text = format!("{} {} HTTP/1.1\r\n", template.method, template.path);
    if !has("host") {
        text += &format!("Host: {}\r\n", plan.host);
    }
    for (name, value) in &template.headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !plan.keep_alive && !has("connection") {
        text += "Connection: close\r\n";
    }
    let (own, is_body) = match plan.protocol {
        Protocol::Http1 | Protocol::Http2 { .. } => (&[][..], true),
        Protocol::Grpc { .. } => (&[("Content-Type", "application/grpc"), ("TE", "trailers")][..], false),
        Protocol::WebSocket => (&UPGRADE[..], false),
    };
    for (name, value) in own.iter().filter(|(name, _)| !has(name)) {
        text += &format!("{name}: {value}\r\n");
    }
    let mut pieces = pieces(&text, &plan.requests.variables);
    let measured = is_body && !body.is_empty() && !has("content-length") && !has("transfer-encoding");
    match body {
        [Piece::Text(body)] if measured => {
            append(&mut pieces, &format!("Content-Length: {}\r\n", body.len()))
        }
        _ if measured => {
            append(&mut pieces, "Content-Length: ");
            pieces.push(Piece::BodyLength);
            append(&mut pieces, "\r\n");
        }
        _ => {}
    }
    append(&mut pieces, "\r\n");
    pieces
}

/// The key of every connection that is upgraded to WebSocket: nothing is hidden by it.
pub(super) const KEY: &str = "d2VpcmxhYiBtZWFzdXJlcw==";
const UPGRADE: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
];

fn append(pieces: &mut Vec<Piece>, more: &str) {
    match pieces.last_mut() {
        Some(Piece::Text(text)) => text.extend_from_slice(more.as_bytes()),
        _ => pieces.push(Piece::Text(more.as_bytes().to_vec())),
    }
}

/// `{name}` is a place where a variable has that name, and text otherwise: bodies are often JSON.
fn pieces(text: &str, variables: &[Variable]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, after) = (&rest[..open], &rest[open + 1..]);
        let place = after.find('}').and_then(|close| {
            let position = variables.iter().position(|variable| variable.name == after[..close])?;
            Some((position, &after[close + 1..]))
        });
        match place {
            Some((variable, after)) => {
                if !before.is_empty() {
                    append(&mut pieces, before);
                }
                pieces.push(Piece::Variable(variable));
                rest = after;
            }
            None => {
                append(&mut pieces, &rest[..=open]);
                rest = after;
            }
        }
    }
    if !rest.is_empty() {
        append(&mut pieces, rest);
    }
    pieces
}

/// What looks like the name of a variable in a path.
fn names(path: &str) -> impl Iterator<Item = &str> {
    let inner = path.split('{').skip(1).filter_map(|part| part.split_once('}').map(|(name, _)| name));
    inner.filter(|name| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    })
}

fn draws(head: &[Piece], body: &[Piece], variables: &[Source]) -> Vec<usize> {
    let mut draws = Vec::new();
    for piece in head.iter().chain(body) {
        if let Piece::Variable(variable) = piece {
            for needed in variables[*variable].with.into_iter().chain([*variable]) {
                if !draws.contains(&needed) {
                    draws.push(needed);
                }
            }
        }
    }
    draws
}
