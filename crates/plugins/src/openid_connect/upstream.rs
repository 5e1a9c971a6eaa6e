//! What the upstream gets to know of the user.

use super::Instance;
use super::session::Session;
use super::verify::Claims;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value as Json;
use weir_plugin::{Credential, Exchange, Known, LocalResponse, Uuid};

pub(super) const ACCESS_TOKEN: &str = "X-Access-Token";
const ID_TOKEN: &str = "X-ID-Token";
const RAW_ID_TOKEN: &str = "X-Raw-ID-Token";
const USERINFO: &str = "X-Userinfo";
const REFRESH_TOKEN: &str = "X-Refresh-Token";

/// The headers that only the plugin sets.
pub(super) const HEADERS: [&str; 5] = [ACCESS_TOKEN, ID_TOKEN, RAW_ID_TOKEN, USERINFO, REFRESH_TOKEN];

impl Instance {
    /// Describes a session to the upstream.
    pub(super) fn describe_session(
        &self,
        exchange: &mut Exchange,
        session: &Session,
    ) -> Result<(), LocalResponse> {
        self.identify(exchange, &session.subject, session.consumer.as_deref())?;
        let (config, contents) = (&self.config, self.config.contents());
        self.set_access_token(exchange, session.access_token.as_deref());
        let id_token = session.id_token.as_deref();
        let claims = id_token.filter(|_| config.set_id_token_header && contents.id_token).and_then(claims_of);
        set(exchange, ID_TOKEN, claims.map(|claims| STANDARD.encode(claims)).as_deref());
        let raw = id_token.filter(|_| config.set_raw_id_token_header && contents.enc_id_token);
        set(exchange, RAW_ID_TOKEN, raw);
        self.set_user(exchange, session.user.as_ref());
        let refresh_token = session.refresh_token.as_deref().filter(|_| config.set_refresh_token_header);
        set(exchange, REFRESH_TOKEN, refresh_token);
        Ok(())
    }

    /// Describes a bearer token and its claims to the upstream.
    pub(super) fn describe_token(
        &self,
        exchange: &mut Exchange,
        token: &str,
        claims: &Claims,
    ) -> Result<(), LocalResponse> {
        let text = |name: &str| claims.get(name).and_then(Json::as_str);
        // A client may have the name of a user.
        let client = || text("client_id").map(|client| format!("client:{client}")).unwrap_or_default();
        let subject = text("sub").map_or_else(client, str::to_owned);
        let consumer = self.config.consumer_claim.as_deref().and_then(text);
        self.identify(exchange, &subject, consumer)?;
        self.set_access_token(exchange, Some(token));
        self.set_user(exchange, Some(claims));
        Ok(())
    }

    fn set_access_token(&self, exchange: &mut Exchange, token: Option<&str>) {
        let Some(token) = token.filter(|_| self.config.set_access_token_header) else { return };
        if self.config.access_token_in_authorization_header {
            exchange.describe_caller(token.as_bytes());
            exchange.request.headers.set("Authorization", format!("Bearer {token}").as_bytes());
        } else {
            set(exchange, ACCESS_TOKEN, Some(token));
        }
    }

    fn set_user(&self, exchange: &mut Exchange, user: Option<&Claims>) {
        let user = user.filter(|_| self.config.set_userinfo_header);
        // Members of an object are always JSON.
        let text = user.map(|user| STANDARD.encode(serde_json::to_vec(user).unwrap_or_default()));
        set(exchange, USERINFO, text.as_deref());
    }

    /// Names the consumer, or that there is none but a user of the provider's.
    fn identify(
        &self,
        exchange: &mut Exchange,
        subject: &str,
        consumer: Option<&str>,
    ) -> Result<(), LocalResponse> {
        exchange.describe_caller(subject.as_bytes());
        let Some((consumers, claim)) = self.consumers.as_ref().zip(self.config.consumer_claim.as_deref())
        else {
            let name = format!("{} {subject}", self.config.discovery);
            let id = Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes());
            exchange.set_authenticated(None, Some(&id.to_string()));
            forget_consumer(exchange);
            exchange.request.headers.set("X-Credential-Identifier", subject.as_bytes());
            return Ok(());
        };
        let found = consumer.and_then(|name| consumers.find(&["username", "custom_id"], name));
        let Some((consumer, id)) = found else {
            let message = format!("No consumer found for the claim '{claim}'");
            return Err(LocalResponse::message(403, &message));
        };
        exchange.authenticate(consumer, Credential { id, identifier: Some(subject) });
        Ok(())
    }
}

/// The upstream must not take what the client says for what the gateway has found.
fn forget_consumer(exchange: &mut Exchange) {
    let names = [
        Known::XConsumerId,
        Known::XConsumerCustomId,
        Known::XConsumerUsername,
        Known::XCredentialIdentifier,
        Known::XAnonymousConsumer,
    ];
    for name in names {
        exchange.request.headers.remove_known(name);
    }
}

fn set(exchange: &mut Exchange, header: &str, value: Option<&str>) {
    exchange.describe_caller(value.unwrap_or_default().as_bytes());
    if let Some(value) = value {
        exchange.request.headers.set(header, value.as_bytes());
    }
}

/// The claims of a token that was verified when the session began.
pub(super) fn claims_of(token: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?.trim_end_matches('=')).ok()
}
