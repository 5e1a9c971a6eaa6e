//! Serves a method of a gRPC service as an HTTP API with JSON, APISIX's grpc-transcode.
//!
//! ```yaml
//! services:
//!   - name: greeter
//!     url: grpc://greeter.internal:50051
//!     routes:
//!       - name: greet
//!         protocols: [http, https]
//!         paths: [/greet]
//!         plugins:
//!           - name: grpc-transcode
//!             config:
//!               proto: |
//!                 syntax = "proto3";
//!                 package helloworld;
//!                 service Greeter { rpc SayHello (HelloRequest) returns (HelloReply) {} }
//!                 message HelloRequest { string name = 1; }
//!                 message HelloReply { string message = 1; }
//!               service: helloworld.Greeter
//!               method: SayHello
//! ```
//!
//! `GET /greet?name=world` then gets `{"message":"Hello world"}`. The route is one of `http` and `https`, and the service one of
//! `grpc` or `grpcs`, otherwise `weir check` warns. [grpc-gateway](grpc-gateway.md) serves all methods of a service by annotations of its `.proto` file.
//!
//! `proto` is the text of one `.proto` file, or the base64 of a `FileDescriptorSet`, which holds several:
//! `protoc --include_imports --descriptor_set_out=FILE`. A text may import `google/protobuf/*.proto` and
//! `google/api/annotations.proto` alone. What does not compile is refused, with the line.
//!
//! APISIX's Admin API and `apisix.yaml` have `proto_id` in its place, the id of an object of `protos`, whose `content` is the same.
//! The object must exist before what refers to it, and can be deleted after that. A change of it takes effect in all objects that
//! refer to it, and is refused if one of them could not use it any more.
//!
//! ## Requests
//!
//! | request | fields of the message |
//! |---|---|
//! | `POST`, `PUT` or `PATCH` with a body of JSON | its members |
//! | `POST` with another body | the arguments of that form |
//! | any other | the arguments of the query |
//!
//! Names are those of the `.proto` file, or as in JSON (`pageSize` for `page_size`). A repeated argument is a list. What the message
//! does not have is ignored. Whole numbers may be texts: `"7"`, `"0x1F"`, and `"#7"`, as responses have them. Enums are names or
//! numbers. A field of `bytes` has the bytes of the text.
//!
//! ## Responses
//!
//! The message is sent as JSON with the names of fields as in the `.proto` file. `pb_option` has one word of each row; of two, the
//! last counts:
//!
//! | | |
//! |---|---|
//! | `enum_as_name`, `enum_as_value` | enums as texts (the default), or as numbers |
//! | `int64_as_number`, `int64_as_string`, `int64_as_hexstring` | numbers of 64 bits as numbers (the default), or those that 32 bits cannot hold as texts such as `"#5000000000"` or `"#0x12A05F200"` |
//! | `auto_default_values`, `use_default_values`, `no_default_values`, `use_default_metatable` | fields without a value have their default if the syntax is `proto3` (the default), always, or are left out. Fields of a `oneof`, and messages, are always left out |
//! | `enable_hooks`, `disable_hooks` | no effect: there are no hooks |
//!
//! Messages of a stream are sent one by one as they come, each on a line. The head is sent with the first.
//!
//! A call that fails before the first message has the status of its `grpc-status`, no body, and `grpc-status` and `grpc-message` as
//! headers. With `show_status_in_body`, what `grpc-status-details-bin` says is the body,
//! `{"error":{"code":14,"message":"…","details":[{"type_url":"…","value":"…"}]}}`, where each of the `details` is decoded if
//! `status_detail_type` names their message.
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
//! | 12 | 501 |
//! | 2, 13, 15 | 500 |
//! | 14 | 503 |
//! | 16 | 401 |
//! | others | 599 |
//!
//! If it fails later, the status is sent already, and the body ends with `{"error":{"code":13,"message":"…"}}`. So it does where a message cannot be translated:
//! the response ends there, and its status is 500 if that is the first. A message may have 8 MiB, 64 MiB as JSON, and about 128 MiB in memory.
//!
//! | status | when |
//! |---|---|
//! | 400 | the body is not JSON although its type says so, or a field cannot have its value; the message says which |
//! | 413 | the body is longer than 1 MiB, or a larger `client_body_buffer_size` |
//!
//! ## Differences from APISIX
//!
//! - A service or a method that the file does not have is refused when it is configured; APISIX responds with 503.
//! - A body that is not JSON is refused; APISIX sends an empty message.
//! - Numbers of 64 bits keep all their digits, an empty list is `[]`, and `"false"` and `"0"` are false.
//! - Bytes that are not UTF-8 are replaced by `U+FFFD`.

mod arguments;
mod decode;
mod encode;
mod pools;
mod status;

use crate::shared::grpc::filter::{Filter, Translator};
use crate::shared::grpc::responses::ResponseOptions;
use crate::shared::grpc::warnings::untranslatable;
use crate::shared::grpc::{bounds, call, http_status, is_grpc};
use decode::JsonOptions;
use pools::{Pool, Pools};
use prost_reflect::prost::Message;
use prost_reflect::{MessageDescriptor, MethodDescriptor};
use serde_json::json;
use std::sync::Arc;
use weir_plugin::{
    AccessEffect, BuildContext, Document, EntityWarning, Exchange, Flow, Headers, Hooks, LocalResponse,
    Phases, Plugin, Record, WantsBody,
};

/// Which method is called, and how its messages are written.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The text of a `.proto` file, or a `FileDescriptorSet` in base64.
    #[field(len_max = 1048576)]
    pub proto: String,
    /// The service, with its package.
    pub service: String,
    /// The method of the service.
    pub method: String,
    /// Milliseconds that the service may take, which it gets as `grpc-timeout`; 0 for no limit.
    #[field(default = 0, between = [0, 99999999])]
    pub deadline: u32,
    #[field(flatten)]
    pub responses: ResponseOptions,
}

/// One configured instance.
pub(super) struct GrpcTranscode(Arc<Transcoder>);

/// The method, and how its messages are written.
struct Transcoder {
    method: MethodDescriptor,
    options: JsonOptions,
    deadline: u32,
    show_status_in_body: bool,
    status_detail: Option<MessageDescriptor>,
    /// Others with the same text share it as long as one holds it.
    _pool: Arc<Pool>,
}

/// A request that goes to the upstream as a call.
struct Called(Arc<Transcoder>);

impl Plugin for GrpcTranscode {
    const NAME: &'static str = "grpc-transcode";
    const PRIORITY: i32 = 506;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn document_warnings(document: &Document) -> Vec<EntityWarning> {
        untranslatable(document, Self::NAME)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let pool = build.retained.get::<Pools>().of(&config.proto)?;
        let Config { service, method, .. } = &config;
        let found = pool.0.get_service_by_name(service);
        let found = found.ok_or_else(|| format!("config.service: the proto has no service {service}"))?;
        let found = found.methods().find(|known| known.name() == method);
        let found = found.ok_or_else(|| format!("config.method: {service} has no method {method}"))?;
        if found.is_client_streaming() {
            return Err(format!("config.method: {method} takes a stream; a request is one message"));
        }
        let detail = |name: &String| {
            let message = pool.0.get_message_by_name(name);
            message.ok_or_else(|| format!("config.status_detail_type: the proto has no message {name}"))
        };
        let status_detail = config.responses.status_detail_type.as_ref().map(detail).transpose()?;
        Ok(Self(Arc::new(Transcoder {
            method: found,
            options: JsonOptions::of(&config.responses.pb_option),
            deadline: config.deadline,
            show_status_in_body: config.responses.show_status_in_body,
            status_detail,
            _pool: pool,
        })))
    }
}

impl Hooks for GrpcTranscode {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        // The body decides whether there is a call, which has another path.
        AccessEffect::Unknown
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if exchange.body().is_none() && exchange.has_body() {
            return Flow::Respond(LocalResponse::error(413, "Payload too large"));
        }
        let message = match self.0.message(exchange) {
            Ok(message) => message,
            Err(why) => return Flow::Respond(LocalResponse::error(400, &why)),
        };
        call(exchange, &self.0.method, &message);
        if self.0.deadline > 0 {
            let timeout = format!("{}m", self.0.deadline);
            exchange.request.headers.set("grpc-timeout", timeout.as_bytes());
        }
        exchange.extensions.insert(Called(self.0.clone()));
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        let response = &mut exchange.response;
        let is_grpc = is_grpc(response.headers.get("Content-Type"));
        let Some(Called(transcoder)) = exchange.extensions.get().filter(|_| is_grpc) else { return };
        let transcoder = transcoder.clone();
        response.headers.set("Content-Type", b"application/json");
        if let Some(code) = response.headers.get("grpc-status") {
            response.status = status(code);
        }
        let body = transcoder.status_body(&response.headers).filter(|_| response.status >= 300);
        match body {
            Some(body) => {
                exchange.set_response_body(body);
                // The response of a call that fails at once has none of its own.
                exchange.buffer_response();
            }
            None => exchange.filter_response_body(Filter::new(transcoder)),
        }
    }
}

impl Transcoder {
    /// The message for a request.
    fn message(&self, exchange: &Exchange) -> Result<Vec<u8>, String> {
        let members = arguments::of(exchange)?;
        let message = encode::message(&self.method.input(), &members).map_err(|error| error.to_string())?;
        Ok(message.encode_to_vec())
    }

    /// The body for what a failed call's details say, if they are to be shown.
    fn status_body(&self, headers: &Headers) -> Option<Vec<u8>> {
        let details = headers.get("grpc-status-details-bin").filter(|_| self.show_status_in_body)?;
        let body = status::json(details, self.status_detail.as_ref(), self.options);
        Some(body.unwrap_or_else(|why| json!({ "message": why })).to_string().into_bytes())
    }
}

impl Translator for Arc<Transcoder> {
    const PLUGIN: &'static str = GrpcTranscode::NAME;

    fn is_stream(&self) -> bool {
        self.method.is_server_streaming()
    }

    fn translate(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let message = bounds::decode(self.method.output(), message)?;
        Ok(decode::object(&message, self.options)?.to_string().into_bytes())
    }

    fn status(&self, code: &[u8]) -> u16 {
        status(code)
    }

    fn failure(&self, trailers: &Headers) -> Vec<u8> {
        self.status_body(trailers).unwrap_or_default()
    }
}

/// The status of HTTP for a status of gRPC, as in APISIX.
fn status(code: &[u8]) -> u16 {
    match code {
        b"12" => 501,
        b"2" | b"13" | b"15" => 500,
        _ => match http_status(code) {
            500 => 599,
            known => known,
        },
    }
}

/// Whether the content of one of APISIX's protos can be used; else what is wrong with it, and in which line.
pub(super) fn check_proto(content: &str) -> Result<(), String> {
    crate::shared::grpc::proto::compile(content).map(drop)
}
