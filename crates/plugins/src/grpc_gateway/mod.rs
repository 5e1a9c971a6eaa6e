//! Serves a gRPC service as an HTTP API with JSON, by the annotations `google.api.http` of its `.proto` file.
//!
//! ```yaml
//! services:
//!   - name: library
//!     url: grpc://library.internal:9000
//!     routes:
//!       - name: library
//!         protocols: [http, https]
//!         paths: [/v1]
//!         plugins:
//!           - name: grpc-gateway
//!             config:
//!               proto: /etc/weir/library.proto
//! ```
//!
//! The route is one of `http` and `https`, and the service one of `grpc` or `grpcs`.
//!
//! `proto` names a file on the node, which is read when the configuration is loaded. Its imports are looked for in its own folder,
//! `/usr/local/kong/include`, `/usr/local/opt/protobuf/include`, `/usr/include` and `kong/include`; `google/api/annotations.proto`
//! and `google/protobuf/*.proto` need not be there.
//!
//! ## Requests
//!
//! The first annotation counts whose method and path template are those of the request: `get`, `post`, `put`, `patch` and
//! `delete`, also in `additional_bindings`. A template has literals, `*` for a segment, `**` for one or more, `{field}`,
//! `{field=shelves/*}`, and a verb behind a colon. Fields of inner messages are written `{user.id}`.
//!
//! | `body` of the annotation | fields of the message |
//! |---|---|
//! | none | those of the path, and of the query: `?page_size=5&user.id=7`. A repeated field may be given several times |
//! | `*` | those of the path, and the members of the body, which win |
//! | a field | those of the path and the query, and the body as that field |
//!
//! Members, arguments and names of enums that the message does not have are ignored. In a query `false` and `0` are false, and what else
//! a boolean is set to is true.
//!
//! ## Responses
//!
//! The message is sent as JSON with the names of fields as in the file, numbers of 64 bits as numbers, and fields that have their
//! default. `response_body` of the annotation picks one of its fields. Messages of a stream are sent one by one as they come,
//! each on a line. The head is sent with the first.
//!
//! A call that fails before the first message has the status of its `grpc-status`, no body, and `grpc-status` and `grpc-message` as
//! headers:
//!
//! | `grpc-status` | status |
//! |---|---|
//! | 1 | 499 |
//! | 3, 9, 11 | 400 |
//! | 4 | 504 |
//! | 5 | 404 |
//! | 6, 10 | 409 |
//! | 7 | 403 |
//! | 8 | 429 |
//! | 14 | 503 |
//! | 16 | 401 |
//! | others | 500 |
//!
//! If it fails later, the status is sent already, and the body ends with `{"error":{"code":13,"message":"…"}}`. So it does where a message cannot be translated:
//! the response ends there, and its status is 500 if that is the first. A message may have 8 MiB, 64 MiB as JSON, and about 128 MiB in memory.
//!
//! | status | body | when |
//! |---|---|---|
//! | 200 | `OK` | the method is `OPTIONS`; the response has the headers that browsers need |
//! | 400 | what is wrong | no annotation is for the request, or the message is not valid |
//! | 413 | `Payload too large` | the body is longer than 1 MiB, or a larger `client_body_buffer_size` |
//!
//! An upstream that answers with something else than gRPC is passed on as it is.

mod message;
mod rules;
mod template;

use crate::shared::grpc::filter::{Filter, Translator};
use crate::shared::grpc::warnings::untranslatable;
use crate::shared::grpc::{call, http_status, is_grpc, schema};
use rules::Endpoint;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::Arc;
use weir_plugin::{
    AccessEffect, BuildContext, Document, EntityWarning, Exchange, Flow, Hooks, LocalResponse, Method,
    Phases, Plugin, Record, WantsBody,
};

/// The services.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The path of the `.proto` file.
    pub proto: Option<String>,
}

/// One configured instance.
pub(super) struct GrpcGateway {
    /// None without a file.
    endpoints: Option<Vec<Arc<Endpoint>>>,
}

/// The endpoint of a request that goes to the upstream.
struct Call(Arc<Endpoint>);

impl Plugin for GrpcGateway {
    const NAME: &'static str = "grpc-gateway";
    const PRIORITY: i32 = 998;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn document_warnings(document: &Document) -> Vec<EntityWarning> {
        untranslatable(document, Self::NAME)
    }

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let load = |path: &str| {
            Ok::<_, String>(rules::endpoints(&schema::load(path)?)?.into_iter().map(Arc::new).collect())
        };
        Ok(Self { endpoints: config.proto.as_deref().map(load).transpose()? })
    }
}

impl Hooks for GrpcGateway {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access_effect(&self, exchange: &Exchange) -> AccessEffect {
        match exchange.request.method {
            Method::Options => AccessEffect::Predictable,
            // The body decides whether there is a call, which has another path.
            _ => AccessEffect::Unknown,
        }
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if exchange.request.method == Method::Options {
            let answer = LocalResponse::raw(200, Some("application/json"), "OK");
            let answer = answer.header("Access-Control-Allow-Methods", "GET,POST,PATCH,DELETE");
            return Flow::Respond(answer.header("Access-Control-Allow-Headers", "content-type"));
        }
        if exchange.body().is_none() && exchange.has_body() {
            return Flow::Respond(LocalResponse::error(413, "Payload too large"));
        }
        match self.call(exchange) {
            Ok((endpoint, message)) => {
                call(exchange, &endpoint.method, &message);
                exchange.extensions.insert(Call(endpoint));
                Flow::Continue
            }
            Err(why) => Flow::Respond(LocalResponse::raw(400, Some("text/plain; charset=utf-8"), why)),
        }
    }

    fn response(&self, exchange: &mut Exchange) {
        let response = &mut exchange.response;
        response.headers.set("Access-Control-Allow-Origin", b"*");
        let is_grpc = is_grpc(response.headers.get("Content-Type"));
        let Some(Call(endpoint)) = exchange.extensions.get().filter(|_| is_grpc) else { return };
        response.headers.set("Content-Type", b"application/json");
        if let Some(code) = response.headers.get("grpc-status") {
            response.status = http_status(code);
        }
        let filter = Filter::new(endpoint.clone());
        exchange.filter_response_body(filter);
    }
}

impl GrpcGateway {
    /// The endpoint for a request, and the message.
    fn call(&self, exchange: &Exchange) -> Result<(Arc<Endpoint>, Vec<u8>), String> {
        let endpoints = self.endpoints.as_ref();
        let endpoints = endpoints.ok_or("transcoding requests require a .proto file defining the service")?;
        let (method, path) = (exchange.request.method_str(), exchange.path());
        let failed =
            |what: &str, value: &str| format!("failed to transcode .proto file Unknown {what} {value:?}");
        let mut of_method = endpoints.iter().filter(|endpoint| endpoint.http_method == method).peekable();
        if of_method.peek().is_none() {
            return Err(failed("method", &method.to_ascii_lowercase()));
        }
        let found = of_method.find_map(|endpoint| Some((endpoint, endpoint.template.matches(path)?)));
        let (endpoint, variables) = found.ok_or_else(|| failed("path", path))?;
        Ok((endpoint.clone(), message::message(endpoint, variables, exchange)?))
    }
}

impl Translator for Arc<Endpoint> {
    const PLUGIN: &'static str = GrpcGateway::NAME;

    fn is_stream(&self) -> bool {
        self.method.is_server_streaming()
    }

    fn translate(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let json = schema::to_json(self.method.output(), message)?;
        let Some(name) = &self.response_body else { return Ok(json) };
        let members: HashMap<String, &RawValue> = serde_json::from_slice(&json).unwrap_or_default();
        Ok(members.get(name).map_or("null", |value| value.get()).as_bytes().to_vec())
    }

    fn status(&self, code: &[u8]) -> u16 {
        http_status(code)
    }
}
