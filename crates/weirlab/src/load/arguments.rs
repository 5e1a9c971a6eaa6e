//! What the values of `weirlab load`'s options mean.
use super::{Distribution, Values, Variable, WarmUp};
use crate::duration;
use std::fs;
use std::time::Duration;

/// A URL in the parts that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) tls: bool,
    /// Host and port as they are written, for the `Host` header.
    pub(crate) authority: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
}

pub(crate) fn url(text: &str) -> Result<Url, String> {
    let wrong = || format!("{text:?} is not such a URL as http://127.0.0.1:8000/path or https://localhost/");
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(wrong()),
    };
    let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
    let split = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(split);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| no_port(port).unwrap_or_else(wrong))?)
        }
        _ => (authority, if tls { 443 } else { 80 }),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || host.contains(['@', ' ']) {
        return Err(wrong());
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Url { tls, authority: authority.to_owned(), host: host.to_owned(), port, path })
}

/// What is wrong with a number that is no port; none where it is no number.
fn no_port(port: &str) -> Option<String> {
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| format!("{port} is no port; ports are from 1 to 65535"))
}

/// A duration, or, as wrk takes it, a number of seconds without a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).or_else(|wrong| duration::parse(&format!("{text}s")).map_err(|_| wrong))
}

/// A duration, or two with `..` between them: the shortest and the longest.
pub(crate) fn warm_up(text: &str) -> Result<WarmUp, String> {
    let (at_least, at_most) = text.split_once("..").unwrap_or((text, text));
    let (at_least, at_most) = (duration(at_least)?, duration(at_most)?);
    match at_least <= at_most {
        true => Ok(WarmUp { at_least, at_most }),
        false => Err(format!("{text:?} ends before it begins")),
    }
}

/// `Name: value`.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!("{text:?} is not such a header as 'apikey: secret'")),
    }
}

/// `/path`, or `3:/path` for one that is three times as frequent.
pub(crate) fn path(text: &str) -> Result<(u32, String), String> {
    let wrong = || format!("{text:?} is not such a path as /orders or 3:/orders");
    match text.split_once(':') {
        _ if text.starts_with('/') => Ok((1, text.to_owned())),
        Some((weight, path)) if path.starts_with('/') => {
            Ok((weight.parse().map_err(|_| wrong())?, path.to_owned()))
        }
        _ => Err(wrong()),
    }
}

/// The text, or the content of a file after `@`.
pub(crate) fn content(text: &str) -> Result<String, String> {
    match text.strip_prefix('@') {
        Some(file) => fs::read_to_string(file).map_err(|error| format!("{file} cannot be read: {error}")),
        None => Ok(text.to_owned()),
    }
}

/// `NAME=VALUES [DISTRIBUTION] [with OTHER]`.
pub(crate) fn variable(text: &str) -> Result<Variable, String> {
    let wrong = |what: &str| format!("{text:?} is not such a variable as 'route=0..100 kong': {what}");
    let (name, rest) = text.split_once('=').ok_or_else(|| wrong("there is no ="))?;
    let mut words = rest.split_whitespace();
    let values = values(words.next().unwrap_or_default()).map_err(|what| wrong(&what))?;
    let mut variable =
        Variable { name: name.trim().to_owned(), values, distribution: Distribution::Uniform, with: None };
    while let Some(word) = words.next() {
        match (word, word.split_once(':')) {
            ("uniform", _) => variable.distribution = Distribution::Uniform,
            ("kong", _) => variable.distribution = Distribution::Kong,
            ("round-robin", _) => variable.distribution = Distribution::RoundRobin,
            ("zipf", _) => variable.distribution = Distribution::Zipf(1.0),
            (_, Some(("zipf", exponent))) => {
                let exponent = exponent.parse().map_err(|_| wrong("the exponent is not a number"))?;
                variable.distribution = Distribution::Zipf(exponent);
            }
            ("with", _) => {
                variable.with = Some(words.next().ok_or_else(|| wrong("with which one?"))?.to_owned());
            }
            _ => return Err(wrong("it is uniform, zipf, zipf:EXPONENT, kong, round-robin or with OTHER")),
        }
    }
    Ok(variable)
}

/// `0..100`, `red,green,blue`, or `@file` with one in each line.
fn values(text: &str) -> Result<Values, String> {
    if let Some((first, end)) = text.split_once("..") {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
        let (first, end) = (number(first)?, number(end)?);
        return Ok(Values::Numbers { first, count: end.saturating_sub(first) });
    }
    if text.starts_with('@') {
        return Ok(Values::Words(content(text)?.lines().map(str::to_owned).collect()));
    }
    Ok(Values::Words(text.split(',').map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let parts =
            |text| url(text).map(|url| (url.tls, url.authority, url.host, url.port, url.path)).unwrap();
        let owned = |(tls, a, h, port, p): (bool, &str, &str, u16, &str)| {
            (tls, a.to_owned(), h.to_owned(), port, p.to_owned())
        };
        assert_eq!(
            parts("http://localhost:8000/a?b=c#d"),
            owned((false, "localhost:8000", "localhost", 8000, "/a?b=c"))
        );
        assert_eq!(parts("https://example.test"), owned((true, "example.test", "example.test", 443, "/")));
        assert_eq!(parts("http://[::1]:81?q"), owned((false, "[::1]:81", "::1", 81, "/?q")));
        for wrong in ["localhost:8000", "ftp://x/", "http://", "http://x:port/", "http://user@host/"] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
        let port = url("http://x:70000/").unwrap_err();
        assert_eq!(port, "70000 is no port; ports are from 1 to 65535");
    }

    #[test]
    fn durations() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "ten", "5x", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        let bounds = warm_up("200ms..3s").unwrap();
        assert_eq!((bounds.at_least.as_millis(), bounds.at_most.as_secs()), (200, 3));
        assert!(warm_up("3s..1s").is_err());
    }

    #[test]
    fn variables() {
        let route = variable("route=5..105 kong").unwrap();
        assert!(matches!(route.values, Values::Numbers { first: 5, count: 100 }));
        assert_eq!((route.name.as_str(), route.distribution), ("route", Distribution::Kong));
        let user = variable("user=ann,bob zipf:1.2 with route").unwrap();
        assert!(matches!(user.values, Values::Words(words) if words == ["ann", "bob"]));
        assert_eq!((user.distribution, user.with.as_deref()), (Distribution::Zipf(1.2), Some("route")));
        for wrong in ["route", "route=1..x", "route=a odd", "route=a with", "route=@/nowhere"] {
            assert!(variable(wrong).is_err(), "{wrong}");
        }
    }
}
