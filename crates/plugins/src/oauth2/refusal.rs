//! Errors as RFC 6749 has them.

use serde_json::{Map, Value, json};
use std::borrow::Cow;
use weir_plugin::{LocalResponse, RowError};

/// Why a request gets no token, or no access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    error: &'static str,
    description: Cow<'static, str>,
    /// Whether the client's credentials were wrong, and in a header.
    is_of_header: bool,
    /// Whether the fault is the gateway's.
    is_failure: bool,
}

impl Refusal {
    pub(super) fn new(error: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        Self { error, description: description.into(), is_of_header: false, is_failure: false }
    }

    /// The database does not answer.
    pub(super) fn failure(error: &RowError) -> Self {
        tracing::error!("oauth2: tokens cannot be read or written: {error}");
        Self { is_failure: true, ..Self::new("server_error", "An unexpected error occurred") }
    }

    /// The client's credentials are wrong, and were in a header or among the parameters.
    pub(super) fn of_credentials(self, is_of_header: bool) -> Self {
        Self { is_of_header, ..self }
    }

    pub(super) fn is_failure(&self) -> bool {
        self.is_failure
    }

    /// As the response of an endpoint.
    pub(super) fn with_state(&self, state: Option<&str>) -> LocalResponse {
        if self.is_failure {
            return LocalResponse::error(500, &self.description);
        }
        let mut members = self.members();
        members.extend(state.map(|state| ("state".to_owned(), state.into())));
        match self.is_of_header {
            true => respond(401, members).header("WWW-Authenticate", "Basic realm=\"OAuth2.0\""),
            false => respond(400, members),
        }
    }

    pub(super) fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("error".to_owned(), self.error.into());
        members.insert("error_description".to_owned(), json!(self.description));
        members
    }

    /// As the response to a request whose token is not valid.
    pub(super) fn of_bearer(&self, status: u16, realm: Option<&str>) -> LocalResponse {
        if self.is_failure {
            return LocalResponse::error(500, &self.description);
        }
        let mut challenge = "Bearer".to_owned();
        challenge.extend(realm.map(|realm| format!(" realm=\"{realm}\"")));
        // A request without a token gets no more than that (RFC 6750, 3.1).
        if self.error != "invalid_request" {
            challenge
                .push_str(&format!(" error=\"{}\" error_description=\"{}\"", self.error, self.description));
        }
        respond(status, self.members()).header("WWW-Authenticate", challenge)
    }
}

/// JSON that no cache keeps.
pub(super) fn respond(status: u16, members: Map<String, Value>) -> LocalResponse {
    let body = Value::Object(members).to_string();
    LocalResponse::raw(status, Some("application/json; charset=utf-8"), body)
        .header("Cache-Control", "no-store")
        .header("Pragma", "no-cache")
}
