//! The plugin `api-token`: a request needs the token of a consumer in a header.
//!
//! - A request without a valid token gets a 401, after `delay` milliseconds, because that slows down guessing.
//! - The consumer's responses end with `footer`, if it is set.
//! - `GET /api-token/accepted` of the Admin API counts the accepted requests since the node started.
use crate::credential::Token;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_plugin::{
    AdminHandler, AdminMethod, AdminRequest, AdminResponse, AdminRoute, BodyFilter, BuildContext,
    ConsumerIndex, Credential, CustomEntity, CustomEntitySchema, Exchange, FingerprintMap, Fingerprinter,
    Flow, Hooks, Known, LocalResponse, Phases, Plugin, Record, Resume, Uuid,
};

/// Where the token is, and what happens with and without it.
#[derive(Debug, Clone, Record)]
pub struct Config {
    /// The header with the token.
    #[field(default = "X-Api-Token", matches = header_name)]
    pub header: String,
    /// Milliseconds before a request is rejected.
    #[field(default = 200, between = [0, 60000])]
    pub delay: u32,
    /// The text at the end of each response.
    pub footer: Option<String>,
}

/// One configured instance.
pub struct ApiToken {
    config: Config,
    tokens: Arc<Tokens>,
    accepted: Arc<Accepted>,
}

/// The number of accepted requests. It survives reloads.
#[derive(Default)]
struct Accepted(AtomicU64);

/// The tokens of all consumers, by fingerprint, so that the tokens themselves are not kept.
struct Tokens {
    fingerprinter: Fingerprinter,
    owners: FingerprintMap<(ConsumerIndex, Uuid)>,
}

impl Tokens {
    fn new(build: &BuildContext<'_>) -> Self {
        let fingerprinter = Fingerprinter::with_random_key();
        let owner = |token: &Token| {
            let consumer = build.consumer(token.consumer)?;
            Some((fingerprinter.of(token.token.as_bytes()), (consumer, token.id)))
        };
        let owners = build.entities().filter_map(owner).collect();
        Self { fingerprinter, owners }
    }
}

impl Plugin for ApiToken {
    const NAME: &'static str = "api-token";
    const PRIORITY: i32 = 1245;
    const VERSION: &'static str = "1.0.0";
    const FOR_CONSUMERS: bool = false;
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[Token::ENTITY];
    const ADMIN_ROUTES: &'static [AdminRoute] = &[AdminRoute {
        method: AdminMethod::Get,
        path: "/api-token/accepted",
        operation: "get-accepted-requests",
        summary: "The number of requests with a valid token",
        handle: AdminHandler::Now(accepted),
    }];
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self { tokens: build.once(Tokens::new), accepted: build.retained.get(), config })
    }
}

impl Hooks for ApiToken {
    fn phases(&self) -> Phases {
        let footer = Phases::RESPONSE | Phases::RESPONSE_BODY;
        Phases::ACCESS | footer.only_if(self.config.footer.is_some())
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let headers = &mut exchange.request.headers;
        let shown = headers.get(&self.config.header).map(|token| self.tokens.fingerprinter.of(token));
        headers.remove(&self.config.header);
        match shown.and_then(|token| self.tokens.owners.get(&token)) {
            Some(&(consumer, id)) => {
                self.accepted.0.fetch_add(1, Relaxed);
                exchange.authenticate(consumer, Credential { id, identifier: None });
                Flow::Continue
            }
            None => reject_after(Duration::from_millis(self.config.delay.into())),
        }
    }

    fn response(&self, exchange: &mut Exchange) {
        let is_encoded = exchange.response.headers.get_known(Known::ContentEncoding).is_some();
        if let Some(footer) = &self.config.footer
            && exchange.consumer().is_some()
            && !is_encoded
        {
            exchange.filter_response_body(Footer(footer.clone()));
        }
    }
}

/// Passes a response's body on as it comes, and sends a text after it.
struct Footer(String);

impl BodyFilter for Footer {
    fn chunk(&mut self, _: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        chunk
    }

    fn end(self: Box<Self>, _: &mut Exchange) -> Vec<u8> {
        self.0.into_bytes()
    }
}

/// Rejects the request after a pause, in which the worker serves others.
fn reject_after(delay: Duration) -> Flow {
    Flow::Wait(Box::pin(async move {
        tokio::time::sleep(delay).await;
        let resume: Resume = Box::new(|_| Flow::Respond(LocalResponse::error(401, "No valid API token")));
        resume
    }))
}

fn accepted(request: &AdminRequest<'_>) -> AdminResponse {
    let accepted = request.retained.get::<Accepted>();
    AdminResponse::json(200, json!({ "accepted": accepted.0.load(Relaxed) }))
}
