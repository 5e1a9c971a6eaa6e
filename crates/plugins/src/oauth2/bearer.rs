//! Requests with an access token.

use super::Instance;
use super::parameters::{Parameters, hide};
use super::refusal::Refusal;
use super::tokens::{MAX_LEN, Token, find_token};
use std::sync::Arc;
use weir_plugin::{Credential, Exchange, Flow, Resume, RowKey, Uuid};

/// The headers that only the plugin sets.
pub(super) const HEADERS: [&str; 2] = [SCOPE, USER];
const SCOPE: &str = "X-Authenticated-Scope";
const USER: &str = "X-Authenticated-UserId";

impl Instance {
    pub(super) fn authenticate(self: &Arc<Self>, exchange: &mut Exchange) -> Flow {
        let Some(access_token) = self.access_token(exchange).filter(|token| !token.is_empty()) else {
            let missing = Refusal::new("invalid_request", "The access token is missing");
            return self.refuse(exchange, &missing);
        };
        if access_token.len() > MAX_LEN {
            return self.refuse(exchange, &invalid_token());
        }
        match self.cache.get(&access_token) {
            Some(token) => self.settle(exchange, token.as_deref()),
            None => self.look_up(access_token),
        }
    }

    /// Asks the database, then goes on with what it says.
    fn look_up(self: &Arc<Self>, access_token: String) -> Flow {
        let instance = self.clone();
        Flow::Wait(Box::pin(async move {
            let found = find_token(&instance.rows, RowKey::First(access_token.clone())).await;
            let rest: Resume = Box::new(move |exchange| match found {
                Ok(token) => {
                    let token = token.map(Arc::new);
                    instance.cache.remember(&access_token, token.clone());
                    instance.settle(exchange, token.as_deref())
                }
                Err(failure) => Flow::Respond(failure.of_bearer(500, None)),
            });
            rest
        }))
    }

    /// The token of a request, which is hidden from the upstream where that is configured.
    fn access_token(&self, exchange: &mut Exchange) -> Option<String> {
        let Some(header) = self.authorization(exchange) else {
            let token = Parameters::of(exchange).text("access_token")?.to_owned();
            if self.config.hide_credentials {
                hide(exchange, "access_token");
            }
            return Some(token);
        };
        let mut words = header.split_ascii_whitespace();
        let (scheme, token, more) = (words.next(), words.next(), words.next());
        let is_bearer =
            scheme.is_some_and(|it| ["bearer", "token"].iter().any(|it2| it.eq_ignore_ascii_case(it2)));
        match (token, more) {
            (Some(token), None) if is_bearer => {
                let token = token.to_owned();
                if self.config.hide_credentials {
                    exchange.request.headers.remove(&self.config.auth_header_name);
                }
                Some(token)
            }
            // Kong takes the whole header for the token.
            _ => Some(header),
        }
    }

    fn settle(&self, exchange: &mut Exchange, token: Option<&Token>) -> Flow {
        let service = exchange.service().map(|service| service.id);
        let accepted = self.accepted(token, service);
        match accepted {
            Ok(token) => self.accept(exchange, token),
            Err(refusal) => self.refuse(exchange, &refusal),
        }
    }

    /// The token, if it is valid here.
    fn accepted<'t>(&self, token: Option<&'t Token>, service: Option<Uuid>) -> Result<&'t Token, Refusal> {
        let token = token.ok_or_else(invalid_token)?;
        if token.service.is_none() && !self.config.global_credentials {
            let description = "The access token is global, but the current plugin is configured without 'global_credentials'";
            return Err(Refusal::new("invalid_token", description));
        }
        if token.service.is_some() && token.service != service || token.is_expired() {
            return Err(invalid_token());
        }
        Ok(token)
    }

    fn accept(&self, exchange: &mut Exchange, token: &Token) -> Flow {
        let Some(client) = self.clients.get(token.credential) else {
            return self.refuse(exchange, &invalid_token());
        };
        let credential = Credential { id: client.id, identifier: Some(&client.client_id) };
        exchange.authenticate(client.consumer, credential);
        for (name, value) in [(SCOPE, &token.scope), (USER, &token.authenticated_userid)] {
            exchange.request.headers.remove(name);
            let value = value.as_deref().unwrap_or_default();
            if !value.is_empty() {
                exchange.request.headers.set(name, sendable(value).as_bytes());
            }
            exchange.describe_caller(value.as_bytes());
        }
        Flow::Continue
    }

    fn refuse(&self, exchange: &mut Exchange, refusal: &Refusal) -> Flow {
        // The upstream must not take what the client says for what a token says.
        for name in HEADERS {
            exchange.request.headers.remove(name);
        }
        self.fallback.unauthenticated(exchange, || refusal.of_bearer(401, self.config.realm.as_deref()))
    }
}

fn invalid_token() -> Refusal {
    Refusal::new("invalid_token", "The access token is invalid or has expired")
}

/// A text without what would end a header's line.
fn sendable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}
