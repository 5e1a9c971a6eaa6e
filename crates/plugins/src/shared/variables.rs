//! Variables of a request and its response, with APISIX's (and nginx's) names, and texts that contain them.

use std::borrow::Cow;
use std::time::UNIX_EPOCH;
use time::OffsetDateTime;
use weir_plugin::form;
use weir_plugin::schema::{did_you_mean, quoted};
use weir_plugin::{Exchange, Known};

/// The model that a request asks for, which a plugin that reads its body leaves in the exchange.
pub(crate) struct RequestModel(pub(crate) String);

/// A variable of a request, with APISIX's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Variable {
    RemoteAddr,
    RemotePort,
    ServerAddr,
    ServerPort,
    ConsumerName,
    Host,
    HttpHost,
    Uri,
    RequestUri,
    Args,
    IsArgs,
    RequestMethod,
    RequestId,
    Scheme,
    RouteId,
    RouteName,
    ServiceId,
    Status,
    UpstreamStatus,
    UpstreamAddr,
    BytesSent,
    RequestLength,
    RequestTime,
    UpstreamResponseTime,
    TimeIso8601,
    Msec,
    RequestModel,
    Header(String),
    ResponseHeader(String),
    Argument(String),
    Cookie(String),
}

static NAMES: [(&str, Variable); 30] = [
    ("remote_addr", Variable::RemoteAddr),
    ("remote_port", Variable::RemotePort),
    ("server_addr", Variable::ServerAddr),
    ("server_port", Variable::ServerPort),
    ("consumer_name", Variable::ConsumerName),
    ("host", Variable::Host),
    ("http_host", Variable::HttpHost),
    ("uri", Variable::Uri),
    ("request_uri", Variable::RequestUri),
    ("args", Variable::Args),
    ("query_string", Variable::Args),
    ("is_args", Variable::IsArgs),
    ("request_method", Variable::RequestMethod),
    ("method", Variable::RequestMethod),
    ("request_id", Variable::RequestId),
    ("scheme", Variable::Scheme),
    ("route_id", Variable::RouteId),
    ("route_name", Variable::RouteName),
    ("service_id", Variable::ServiceId),
    ("status", Variable::Status),
    ("upstream_status", Variable::UpstreamStatus),
    ("document_uri", Variable::Uri),
    ("upstream_addr", Variable::UpstreamAddr),
    ("bytes_sent", Variable::BytesSent),
    ("request_length", Variable::RequestLength),
    ("request_time", Variable::RequestTime),
    ("upstream_response_time", Variable::UpstreamResponseTime),
    ("time_iso8601", Variable::TimeIso8601),
    ("msec", Variable::Msec),
    ("request_llm_model", Variable::RequestModel),
];

/// Makes the variable of a family from the rest of its name.
type Family = fn(&str) -> Variable;

const FAMILIES: [(&str, Family); 5] = [
    ("http_", |name| Variable::Header(header(name))),
    ("sent_http_", |name| Variable::ResponseHeader(header(name))),
    ("upstream_http_", |name| Variable::ResponseHeader(header(name))),
    ("arg_", |name| Variable::Argument(name.to_owned())),
    ("cookie_", |name| Variable::Cookie(name.to_owned())),
];

/// The header that a variable's name stands for: nginx writes `_` for `-`.
fn header(name: &str) -> String {
    name.replace('_', "-")
}

impl Variable {
    /// The variable of this name, if there is one.
    pub(crate) fn find(name: &str) -> Option<Self> {
        if let Some((_, variable)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Some(variable.clone());
        }
        let family = FAMILIES.iter().find_map(|(prefix, of)| Some((name.strip_prefix(prefix)?, of)));
        family.filter(|(rest, _)| !rest.is_empty()).map(|(rest, of)| of(rest))
    }

    /// The variable of this name, or why there is none.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        Self::find(name).ok_or_else(|| {
            let names: Vec<_> = NAMES.iter().map(|(known, _)| *known).collect();
            let hint = did_you_mean(name, names.iter().copied());
            let (shown, names) = (quoted(name), names.join(", "));
            format!(
                "unknown variable `{shown}`; expected one of {names}, http_NAME, sent_http_NAME, \
                 upstream_http_NAME, arg_NAME and cookie_NAME{hint}"
            )
        })
    }

    /// Its value; none if the request has none.
    pub(crate) fn value<'e>(&'e self, exchange: &'e Exchange) -> Option<Cow<'e, [u8]>> {
        let text = |text: String| Some(Cow::Owned(text.into_bytes()));
        match self {
            Variable::RemoteAddr => text(exchange.client_ip.to_string()),
            Variable::RemotePort => text(exchange.peer.port().to_string()),
            Variable::ServerAddr => text(exchange.local().ip().to_string()),
            Variable::ServerPort => text(exchange.local().port().to_string()),
            Variable::ConsumerName => {
                exchange.consumer()?.entity.username.as_deref().map(|name| name.as_bytes().into())
            }
            Variable::Host => text(exchange.host().into_owned()),
            Variable::HttpHost => exchange.header(Known::Host).map(Cow::Borrowed),
            Variable::Uri => Some(exchange.path().as_bytes().into()),
            Variable::RequestModel => {
                exchange.extensions.get::<RequestModel>().map(|RequestModel(name)| name.as_bytes().into())
            }
            Variable::RequestUri => text(match exchange.query() {
                Some(query) => format!("{}?{query}", exchange.path()),
                None => exchange.path().to_owned(),
            }),
            Variable::Args => exchange.query().map(|query| query.as_bytes().into()),
            Variable::IsArgs => exchange.query().map(|_| b"?".as_slice().into()),
            Variable::RequestMethod => Some(exchange.request.method_str().as_bytes().into()),
            Variable::RequestId => Some(exchange.id().as_bytes().into()),
            Variable::Scheme => Some(exchange.scheme().as_bytes().into()),
            Variable::RouteId | Variable::RouteName | Variable::ServiceId => {
                self.of_route(exchange).map(|name| name.into_owned().into_bytes().into())
            }
            Variable::Status => text(exchange.response.status.to_string()),
            Variable::UpstreamStatus => text(exchange.service_status()?.to_string()),
            Variable::UpstreamAddr => text(exchange.upstream_address()?.to_string()),
            Variable::BytesSent => text(exchange.bytes_out.to_string()),
            Variable::RequestLength => text(exchange.bytes_in.to_string()),
            Variable::RequestTime
            | Variable::UpstreamResponseTime
            | Variable::TimeIso8601
            | Variable::Msec => text(self.of_time(exchange)?),
            Variable::Header(name) => exchange.request.headers.get(name).map(Cow::Borrowed),
            Variable::ResponseHeader(name) => exchange.response.headers.get(name).map(Cow::Borrowed),
            Variable::Argument(name) => argument(exchange.query().unwrap_or_default(), name),
            Variable::Cookie(name) => cookie(exchange, name),
        }
    }

    fn of_time(&self, exchange: &Exchange) -> Option<String> {
        let now = || exchange.ended_at().duration_since(UNIX_EPOCH).unwrap_or_default();
        let latencies = exchange.latencies();
        Some(match self {
            Variable::TimeIso8601 => iso8601(now().as_secs()),
            Variable::Msec => format!("{:.3}", now().as_secs_f64()),
            Variable::RequestTime => format!("{:.3}", latencies.request.as_secs_f64()),
            _ => format!("{:.3}", (latencies.proxy? + latencies.receive.unwrap_or_default()).as_secs_f64()),
        })
    }

    fn of_route<'e>(&self, exchange: &'e Exchange) -> Option<Cow<'e, str>> {
        match self {
            Variable::RouteName => exchange.route()?.entity.name.as_deref().map(Cow::Borrowed),
            Variable::ServiceId => service_id(exchange),
            _ => route_id(exchange),
        }
    }
}

/// A time in seconds since 1970 as `2026-01-31T23:59:59+00:00`.
fn iso8601(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|time| OffsetDateTime::from_unix_timestamp(time).ok());
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (hour, minute, second) = time.to_hms();
    format!("{}T{hour:02}:{minute:02}:{second:02}+00:00", time.date())
}

/// The id of the route; of a route of APISIX, the id that it has there.
pub(crate) fn route_id(exchange: &Exchange) -> Option<Cow<'_, str>> {
    let route = &exchange.route()?.entity;
    Some(apisix_id(&route.tags, "routes").map_or_else(|| route.id.to_string().into(), Cow::Borrowed))
}

/// The id of the service; of a service of APISIX, the id that it has there.
pub(crate) fn service_id(exchange: &Exchange) -> Option<Cow<'_, str>> {
    let service = exchange.service()?;
    Some(apisix_id(&service.tags, "services").map_or_else(|| service.id.to_string().into(), Cow::Borrowed))
}

/// The id of the object of APISIX that an entity derives from, by its tag `apisix:KIND:ID`.
fn apisix_id<'t>(tags: &'t Option<Vec<String>>, kind: &str) -> Option<&'t str> {
    let mut tags = tags.iter().flatten();
    tags.find_map(|tag| tag.strip_prefix("apisix:")?.strip_prefix(kind)?.strip_prefix(':'))
}

fn argument<'e>(query: &'e str, name: &str) -> Option<Cow<'e, [u8]>> {
    form::pairs(query).find(|pair| *pair.name == *name.as_bytes())?.value
}

/// The value of the request's cookie of this name.
pub(crate) fn cookie<'e>(exchange: &'e Exchange, name: &str) -> Option<Cow<'e, [u8]>> {
    let pairs =
        exchange.request.headers.get_all("cookie").flat_map(|value| value.split(|byte| *byte == b';'));
    pairs
        .filter_map(|pair| {
            let pair = pair.trim_ascii();
            let at = pair.iter().position(|byte| *byte == b'=')?;
            Some((&pair[..at], &pair[at + 1..]))
        })
        .find(|(cookie, _)| *cookie == name.as_bytes())
        .map(|(_, value)| value.into())
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Variable(Variable),
    /// What a group of a regex has matched.
    Group(usize),
}

/// A text that contains variables, such as `$remote_addr` and `${uri}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

impl Template {
    /// Parses a text. As in APISIX, a variable that does not exist has no value, and `\$` stays as it is.
    pub(crate) fn parse(text: &str) -> Self {
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, dollar) = rest.split_at(at);
            literal.push_str(before);
            match name_after(dollar).filter(|_| !before.ends_with('\\')) {
                Some((name, after)) => {
                    let variable = match name.parse() {
                        Ok(group) => Some(Part::Group(group)),
                        Err(_) => Variable::find(name).map(Part::Variable),
                    };
                    if let Some(variable) = variable {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                        parts.push(variable);
                    }
                    rest = after;
                }
                None => {
                    literal.push('$');
                    rest = &dollar[1..];
                }
            }
        }
        literal.push_str(rest);
        parts.push(Part::Text(literal));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        Self(parts)
    }

    /// The text with the values of this request.
    pub(crate) fn render<'t>(&'t self, exchange: &Exchange) -> Cow<'t, [u8]> {
        self.render_with(exchange, &[])
    }

    /// The same, with what the groups of a regex have matched for `$1` and so on.
    pub(crate) fn render_with<'t>(&'t self, exchange: &Exchange, groups: &[String]) -> Cow<'t, [u8]> {
        match self.0.as_slice() {
            [] => Cow::Borrowed(b""),
            [Part::Text(text)] => Cow::Borrowed(text.as_bytes()),
            parts => {
                let mut text = Vec::with_capacity(64);
                parts.iter().for_each(|part| part.write(exchange, groups, &mut text));
                Cow::Owned(text)
            }
        }
    }
}

impl Part {
    fn write(&self, exchange: &Exchange, groups: &[String], text: &mut Vec<u8>) {
        match self {
            Part::Text(piece) => text.extend_from_slice(piece.as_bytes()),
            Part::Group(group) => {
                text.extend_from_slice(groups.get(*group).map_or(b"", |group| group.as_bytes()));
            }
            Part::Variable(variable) => {
                if let Some(value) = variable.value(exchange) {
                    text.extend_from_slice(&value);
                }
            }
        }
    }
}

/// The name after a `$`, with or without braces, and what follows it.
fn name_after(dollar: &str) -> Option<(&str, &str)> {
    let variable = dollar.strip_prefix('$')?;
    let (name, after) = match variable.strip_prefix('{') {
        Some(braced) => braced.split_once('}')?,
        None => {
            // What follows the number of a group belongs to the text, as in `$1_$2`.
            let is_group = variable.starts_with(|c: char| c.is_ascii_digit());
            let is_part = |c: char| c.is_ascii_digit() || !is_group && (c.is_ascii_alphabetic() || c == '_');
            let end = variable.find(|c: char| !is_part(c));
            variable.split_at(end.unwrap_or(variable.len()))
        }
    };
    (!name.is_empty()).then_some((name, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plugin::testing::Gateway;

    #[test]
    fn times_are_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00+00:00"),
            (951_782_399, "2000-02-28T23:59:59+00:00"),
            (951_782_400, "2000-02-29T00:00:00+00:00"),
            (1_709_251_200, "2024-03-01T00:00:00+00:00"),
            (4_102_444_799, "2099-12-31T23:59:59+00:00"),
        ] {
            assert_eq!(iso8601(seconds), expected);
        }
    }

    #[test]
    fn texts_have_the_values_of_the_request() {
        let exchange = Gateway::new(&[]).exchange("GET /a/b?x=1&y=2\nX-Tenant: blue\nCookie: c=3; d=4");
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$uri/x", "/a/b/x"),
            ("${uri}x$arg_y$cookie_d", "/a/bx24"),
            ("$http_x_tenant-$nothing-$", "blue--$"),
            ("https://$host$request_uri", "https://gateway.test/a/b?x=1&y=2"),
            ("\\$uri ${uri", "\\$uri ${uri"),
            ("$uri$is_args$args", "/a/b?x=1&y=2"),
        ] {
            let text = Template::parse(text);
            assert_eq!(String::from_utf8_lossy(&text.render(&exchange)), expected);
        }
        let groups = ["all".to_owned(), "one".to_owned()];
        assert_eq!(&*Template::parse("/$1-$2-$0").render_with(&exchange, &groups), b"/one--all");
        assert_eq!(&*Template::parse("/$1_$0x").render_with(&exchange, &groups), b"/one_allx");
    }
}
