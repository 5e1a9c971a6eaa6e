//! Requests of browsers: with a session, or without one.

use super::error::ProviderError;
use super::login::{BeginError, is_callback, set_cookies};
use super::logout::is_from_another_site;
use super::metadata::Metadata;
use super::renewal::Outcome;
use super::session::{Session, SessionError, hide};
use super::{Cookies, Instance};
use std::sync::Arc;
use weir_plugin::{Exchange, Flow, LocalResponse, Resume, unix_time};

/// What the access hook leaves to the response hook: the session, and the cookies that it has if it was renewed.
pub(super) struct Passed {
    session: Session,
    renewed: Vec<String>,
}

impl Instance {
    /// Lets a request pass by its session.
    pub(super) fn by_session(self: &Arc<Self>, exchange: &mut Exchange, cookies: &Cookies) -> Flow {
        if is_callback(&self.config, exchange) {
            return self.callback(exchange);
        }
        let session = match cookies.keeper.open(exchange) {
            Ok(session) => session,
            Err(_) => {
                let message = "The request has sessions of two users; open the page again, or else delete the cookies of this site";
                let answer = LocalResponse::error(400, message).header("Cache-Control", "no-store");
                return Flow::Respond(set_cookies(answer, &cookies.keeper.forget_all(exchange)));
            }
        };
        if exchange.path() == self.config.logout_path {
            if is_from_another_site(exchange) {
                let message = "The logout comes from another site; open it from a page of this one";
                return Flow::Respond(LocalResponse::error(403, message).header("Cache-Control", "no-store"));
            }
            return self.log_out(exchange, session);
        }
        match session {
            None => self.unauthenticated(exchange),
            Some(session) if self.config.renew_access_token_on_expiry && self.has_expired(&session) => {
                self.renew_first(exchange, session)
            }
            Some(session) => self.pass(exchange, session, false),
        }
    }

    /// Renews the access token, then lets the request pass.
    fn renew_first(self: &Arc<Self>, exchange: &mut Exchange, session: Session) -> Flow {
        let is_valid = session.expires.is_none_or(|expires| expires > unix_time());
        let Some(refresh_token) = session.refresh_token.clone() else {
            return if is_valid {
                self.pass(exchange, session, false)
            } else {
                self.unauthenticated(exchange)
            };
        };
        let instance = self.clone();
        Flow::Wait(Box::pin(async move {
            let renewed = instance.clone().renewed(session.clone(), refresh_token).await;
            let former = is_valid.then_some(session);
            Box::new(move |exchange: &mut Exchange| instance.resume(exchange, renewed, former)) as Resume
        }))
    }

    /// Goes on after a renewal. `former` is the session before, if its access token is still valid.
    fn resume(self: &Arc<Self>, exchange: &mut Exchange, renewed: Outcome, former: Option<Session>) -> Flow {
        match (renewed, former) {
            (Ok(session), _) => self.pass(exchange, Session::clone(&session), true),
            (Err(ProviderError::Refused(_)), _) => self.unauthenticated(exchange),
            (Err(_), Some(former)) => self.pass(exchange, former, false),
            (Err(error), None) => Flow::Respond(error.answer(exchange.id())),
        }
    }

    fn pass(&self, exchange: &mut Exchange, mut session: Session, is_renewed: bool) -> Flow {
        let Some(Cookies { keeper, .. }) = &self.cookies else { return Flow::Continue };
        let renewed = match is_renewed {
            true => keeper.save(&mut session, exchange),
            false => Ok(Vec::new()),
        };
        let renewed = match renewed {
            Ok(renewed) => renewed,
            Err(error) => return Flow::Respond(self.fail(exchange, &error)),
        };
        hide(exchange, &keeper.name);
        let scopes: Vec<&str> = session.scope.split_ascii_whitespace().collect();
        let passes = self.check_scopes(&scopes).and_then(|()| self.describe_session(exchange, &session));
        exchange.extensions.insert(Passed { session, renewed });
        passes.map_or_else(Flow::Respond, |()| Flow::Continue)
    }

    /// What the response sets. It may be late, so that the browser may have another session by now: unless this one was renewed,
    /// the response says nothing but that it was used.
    pub(super) fn set_cookies(&self, exchange: &mut Exchange) -> Vec<String> {
        let Some(Passed { session, renewed }) = exchange.extensions.remove() else { return Vec::new() };
        let keeper = self.cookies.as_ref().map(|cookies| &cookies.keeper).filter(|_| renewed.is_empty());
        let touched = keeper.map_or(Ok(Vec::new()), |keeper| keeper.touch(&session, exchange));
        let touched = touched.unwrap_or_else(|error| {
            tracing::error!(request_id = exchange.id(), "openid-connect: {error}");
            Vec::new()
        });
        renewed.into_iter().chain(touched).collect()
    }

    fn unauthenticated(self: &Arc<Self>, exchange: &mut Exchange) -> Flow {
        match &*self.config.unauth_action {
            "pass" => {
                self.cookies.iter().for_each(|cookies| hide(exchange, &cookies.keeper.name));
                Flow::Continue
            }
            "auth" if is_navigation(exchange) => self.begin_login(exchange),
            _ => {
                let answer = LocalResponse::message(401, "Unauthorized").header("Cache-Control", "no-store");
                Flow::Respond(answer.header("WWW-Authenticate", &self.challenge))
            }
        }
    }

    fn begin_login(self: &Arc<Self>, exchange: &mut Exchange) -> Flow {
        if let Some(metadata) = self.provider().metadata() {
            return Flow::Respond(self.to_provider(exchange, &metadata));
        }
        let instance = self.clone();
        Flow::Wait(Box::pin(async move {
            let metadata = instance.provider().fetched_metadata().await;
            let rest = move |exchange: &mut Exchange| {
                Flow::Respond(match metadata {
                    Ok(metadata) => instance.to_provider(exchange, &metadata),
                    Err(error) => error.answer(exchange.id()),
                })
            };
            Box::new(rest) as Resume
        }))
    }

    fn to_provider(&self, exchange: &Exchange, metadata: &Metadata) -> LocalResponse {
        let Some(Cookies { keeper, logins }) = &self.cookies else {
            return LocalResponse::message(401, "Unauthorized");
        };
        match logins.begin(exchange, &self.config, keeper, metadata) {
            Ok(answer) => answer,
            Err(BeginError::Provider(error)) => error.answer(exchange.id()),
            Err(BeginError::Session(error)) => self.fail(exchange, &error),
        }
    }

    /// The response where a cookie cannot be made.
    pub(super) fn fail(&self, exchange: &Exchange, error: &SessionError) -> LocalResponse {
        tracing::error!(request_id = exchange.id(), "openid-connect: {error}");
        LocalResponse::error(500, "An unexpected error occurred")
    }
}

/// Whether a browser may show what the provider answers: not if a script or an image asks. Older browsers do not say it.
fn is_navigation(exchange: &Exchange) -> bool {
    exchange.request.headers.get("Sec-Fetch-Mode").is_none_or(|mode| mode == b"navigate")
}
