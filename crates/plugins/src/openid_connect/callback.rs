//! The browser comes back from the provider: its code becomes tokens, and these a session.

use super::error::{ProviderError, TokenError, error_code};
use super::login::{Login, Logins, redirect, set_cookies};
use super::metadata::Metadata;
use super::session::Session;
use super::verify::{Claims, Expected, check_id_token};
use super::{Cookies, Instance};
use serde_json::Value as Json;
use std::sync::Arc;
use weir_plugin::{Exchange, Flow, LocalResponse, Resume, unix_time};

/// The longest code.
const MAX_CODE_LEN: usize = 8192;

/// What the provider sends by the browser.
struct Answer {
    state: String,
    code: Option<String>,
    error: Option<String>,
    issuer: Option<String>,
}

impl Answer {
    fn of(exchange: &Exchange) -> Self {
        let text = |name: &str| {
            let value = exchange.query_arg(name)?.value?;
            String::from_utf8(value.into_owned()).ok().filter(|text| text.len() <= MAX_CODE_LEN)
        };
        Self {
            state: text("state").unwrap_or_default(),
            code: text("code"),
            error: text("error"),
            issuer: text("iss"),
        }
    }
}

impl Instance {
    /// Redeems the code, if this browser has asked for it.
    pub(super) fn callback(self: &Arc<Self>, exchange: &mut Exchange) -> Flow {
        let answer = Answer::of(exchange);
        let find = |cookies: &Cookies| cookies.logins.find(exchange, &cookies.keeper, &answer.state);
        let Some(login) = self.cookies.as_ref().and_then(find) else {
            let message = "No login has begun in this browser, or it took too long; open the page again";
            return Flow::Respond(LocalResponse::error(400, message).header("Cache-Control", "no-store"));
        };
        let instance = self.clone();
        Flow::Wait(Box::pin(async move {
            let session = instance.log_in(&login, answer).await;
            Box::new(move |exchange: &mut Exchange| instance.finish_login(exchange, &login, session))
                as Resume
        }))
    }

    async fn log_in(&self, login: &Login, answer: Answer) -> Result<Session, ProviderError> {
        let metadata = self.provider().fetched_metadata().await?;
        check_issuer(&metadata, answer.issuer.as_deref())?;
        if let Some(error) = answer.error {
            return Err(ProviderError::Refused(error_code(&error)));
        }
        let code = answer.code.ok_or(ProviderError::Invalid("there is no code in it".into()))?;
        let mut parameters = vec![
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("redirect_uri", &*login.redirect_uri),
        ];
        parameters.extend(login.verifier.as_deref().map(|verifier| ("code_verifier", verifier)));
        let tokens = self.client.tokens(&metadata, parameters).await?;
        let id_token = tokens.id_token.as_deref();
        let id_token = id_token.ok_or(ProviderError::Invalid("there is no ID token in it".into()))?;
        let claims = self.id_token(&metadata, id_token, Some(&login.nonce), None).await?;
        let text = |name: &str| claims.get(name).and_then(Json::as_str).map(str::to_owned);
        let mut session = Session::new(text("sub").unwrap_or_default());
        session.scope.clone_from(&self.config.scope);
        session.consumer = self.config.consumer_claim.as_deref().and_then(text);
        session.user = self.user(&metadata, &tokens.access_token, &session.subject).await;
        session.update(tokens, &self.config);
        Ok(session)
    }

    /// The claims of an ID token that the provider has sent.
    pub(super) async fn id_token(
        &self,
        metadata: &Metadata,
        token: &str,
        nonce: Option<&str>,
        subject: Option<&str>,
    ) -> Result<Claims, ProviderError> {
        let seen = self.provider().key_generation();
        let mut claims = self.signed_by_provider(token);
        if matches!(claims, Err(TokenError::NotReady | TokenError::UnknownKey)) {
            self.provider().fetch_missing(seen).await;
            claims = self.signed_by_provider(token);
        }
        let claims = claims?;
        let expected = Expected {
            issuer: &metadata.issuer,
            client_id: &self.config.client_id,
            nonce,
            subject,
            now: unix_time(),
            slack: self.config.iat_slack.into(),
        };
        check_id_token(&claims, &expected)?;
        Ok(claims)
    }

    fn signed_by_provider(&self, token: &str) -> Result<Claims, TokenError> {
        let keys = self.provider().key_set();
        let keys = keys.as_ref().map(|keys| keys.get()).filter(|keys| keys.version != 0);
        self.signatures.of_id_token(token, keys.as_deref().map(|keys| &**keys))
    }

    /// What the userinfo endpoint says, if anybody wants to know it. It must be of the same user (OpenID Connect Core 1.0, 5.3.2).
    async fn user(&self, metadata: &Metadata, token: &str, subject: &str) -> Option<Claims> {
        let wanted = self.config.set_userinfo_header && self.config.contents().user;
        let uri = metadata.userinfo_endpoint.as_ref().filter(|_| wanted)?;
        match self.provider().get::<Claims>(uri, token).await {
            Ok(user) if user.get("sub").and_then(Json::as_str) == Some(subject) => Some(user),
            Ok(_) => {
                tracing::warn!("openid-connect: the userinfo endpoint has answered for another user");
                None
            }
            Err(error) => {
                tracing::warn!("openid-connect: the userinfo endpoint was of no help: {error}");
                None
            }
        }
    }

    fn finish_login(
        &self,
        exchange: &mut Exchange,
        login: &Login,
        session: Result<Session, ProviderError>,
    ) -> Flow {
        let Some(cookies) = &self.cookies else { return Flow::Continue };
        let forgotten = Logins::forget(exchange, &cookies.keeper, login);
        let answer = match session {
            Ok(mut session) => match cookies.keeper.save(&mut session, exchange) {
                Ok(set) => set_cookies(redirect(&login.target), &set),
                Err(error) => self.fail(exchange, &error),
            },
            Err(error) => error.answer(exchange.id()),
        };
        Flow::Respond(answer.header("Set-Cookie", forgotten))
    }
}

/// Checks who sends the browser back, so that one provider cannot get another's codes (RFC 9207).
fn check_issuer(metadata: &Metadata, named: Option<&str>) -> Result<(), ProviderError> {
    let is_it = match named {
        Some(named) => named == metadata.issuer,
        None => !metadata.authorization_response_iss_parameter_supported,
    };
    if is_it { Ok(()) } else { Err(ProviderError::Invalid("the browser comes from another provider".into())) }
}
