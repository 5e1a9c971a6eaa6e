//! What a comparison found, by cause.
use super::difference::Difference;
use super::exchange::Failure;
use super::recorded::Request;
use std::collections::{BTreeMap, BTreeSet};
use tokio::task::JoinSet;

/// The most examples of each cause that are shown.
const MAX_EXAMPLES: usize = 10;

/// What came of a request.
pub(super) enum Outcome {
    Compared(Vec<Difference>),
    Failed(Failure),
}

/// A request whose responses differ for a cause.
pub(super) struct Example {
    /// The method and the URL, without secrets.
    pub(super) request: String,
    pub(super) difference: Difference,
}

/// Differences that have a cause in common.
#[derive(Default)]
pub(super) struct Group {
    pub(super) requests: usize,
    pub(super) examples: Vec<Example>,
}

/// What all requests yielded.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) compared: usize,
    pub(super) equal: usize,
    /// Why requests of the file were not sent, and how many.
    pub(super) skipped: BTreeMap<String, usize>,
    /// Why requests could not be compared, and how many.
    pub(super) failed: BTreeMap<String, usize>,
    groups: BTreeMap<String, Group>,
}

impl Summary {
    /// Nothing but entries of the file that are no requests.
    pub(super) fn of_skipped(skipped: BTreeMap<String, usize>) -> Self {
        Self { skipped, ..Self::default() }
    }

    pub(super) fn skip(&mut self, why: &str) {
        *self.skipped.entry(why.to_owned()).or_default() += 1;
    }

    /// Waits for one of the requests in flight.
    pub(super) async fn add_next(&mut self, in_flight: &mut JoinSet<(Request, Outcome)>) {
        match in_flight.join_next().await {
            Some(Ok((request, outcome))) => self.add(&request, outcome),
            Some(Err(error)) => *self.failed.entry(error.to_string()).or_default() += 1,
            None => {}
        }
    }

    fn add(&mut self, request: &Request, outcome: Outcome) {
        let differences = match outcome {
            Outcome::Compared(differences) => differences,
            Outcome::Failed(failure) => return *self.failed.entry(failure.to_string()).or_default() += 1,
        };
        self.compared += 1;
        self.equal += usize::from(differences.is_empty());
        let mut counted = BTreeSet::new();
        for difference in differences {
            let cause = difference.cause();
            let group = self.groups.entry(cause.clone()).or_default();
            if counted.insert(cause) {
                group.requests += 1;
            }
            if group.examples.len() < MAX_EXAMPLES {
                group.examples.push(Example { request: line(request), difference });
            }
        }
    }

    /// Whether everything that was asked was answered alike by both.
    pub(super) fn is_equal(&self) -> bool {
        self.groups.is_empty() && self.failed.is_empty()
    }

    /// The causes: first those of the status, then the others, the commonest first.
    pub(super) fn causes(&self) -> Vec<(&str, &Group)> {
        let mut causes: Vec<_> = self.groups.iter().map(|(cause, group)| (cause.as_str(), group)).collect();
        causes
            .sort_by_key(|(cause, group)| (!cause.starts_with("status "), std::cmp::Reverse(group.requests)));
        causes
    }
}

/// Names of arguments whose values are secret.
const SECRET_ARGUMENTS: [&str; 14] = [
    "key",
    "apikey",
    "api_key",
    "token",
    "access_token",
    "refresh_token",
    "id_token",
    "jwt",
    "code",
    "password",
    "secret",
    "client_secret",
    "signature",
    "sig",
];

fn line(request: &Request) -> String {
    let (path, query) = request
        .target
        .split_once('?')
        .map_or((request.target.as_str(), None), |(path, query)| (path, Some(query)));
    let query =
        query.map(|query| format!("?{}", query.split('&').map(without_secret).collect::<Vec<_>>().join("&")));
    let host = request.host.as_deref().map(|host| format!(" (Host: {host})")).unwrap_or_default();
    format!("{} {path}{}{host}", request.method, query.unwrap_or_default())
}

fn without_secret(argument: &str) -> String {
    match argument.split_once('=') {
        Some((name, _)) if SECRET_ARGUMENTS.iter().any(|secret| name.eq_ignore_ascii_case(secret)) => {
            format!("{name}=***")
        }
        _ => argument.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::compare::difference::Aspect;

    fn request(target: &str) -> Request {
        let method = "GET".to_owned();
        Request { method, target: target.to_owned(), host: None, headers: Vec::new(), body: Vec::new() }
    }

    #[test]
    fn a_request_counts_once_for_each_cause() {
        let of = |index: &str| Difference {
            aspect: Aspect::Json(vec!["items".into(), index.into()]),
            a: Some("1".into()),
            b: Some("2".into()),
        };
        let mut summary = Summary::default();
        summary.add(&request("/x"), Outcome::Compared(vec![of("0"), of("1")]));
        summary.add(&request("/y"), Outcome::Compared(Vec::new()));
        assert_eq!((summary.compared, summary.equal), (2, 1));
        let causes = summary.causes();
        assert_eq!(causes[0].0, "JSON body, items.*: another value");
        assert_eq!((causes[0].1.requests, causes[0].1.examples.len()), (1, 2));
        assert!(!summary.is_equal());
    }

    #[test]
    fn secrets_in_urls_are_not_told() {
        assert_eq!(line(&request("/x?apikey=abc&a=b&Token=t&flag")), "GET /x?apikey=***&a=b&Token=***&flag");
    }
}
