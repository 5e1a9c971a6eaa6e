//! Lets browsers call gRPC services: translates [gRPC-Web](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md) to gRPC.
//!
//! ```yaml
//! services:
//!   - name: greeter
//!     url: grpc://greeter.internal:9000
//!     routes:
//!       - name: greeter
//!         protocols: [http, https]
//!         paths: [/hello.Greeter]
//!         plugins:
//!           - name: grpc-web
//! ```
//!
//! With `config: {proto: /etc/weir/hello.proto}`, also clients without gRPC-Web can call it:
//! `curl localhost:8000/hello.Greeter/SayHello --json '{"name": "Ada"}'`.
//!
//! The route is one of `http` and `https`, and the service one of `grpc` or `grpcs`. The upstream is asked for the path of the
//! request, `/package.Service/Method`. Where clients put something before it, have the route strip that, and set
//! `pass_stripped_path`.
//!
//! | `Content-Type` | body |
//! |---|---|
//! | `application/grpc-web`, `application/grpc-web+proto` | messages of protocol buffers, in frames |
//! | `application/grpc-web-text`, `application/grpc-web-text+proto` | the same in base64 |
//! | `application/grpc-web+json`, `application/grpc-web-text+json` | messages as JSON, in frames, the second in base64; needs `proto` |
//! | `application/json` | one message as JSON, without frame; needs `proto` |
//!
//! The response has the request's type. Messages of a stream are sent one by one as they come; then follows a frame with the
//! trailers, `grpc-status` and `grpc-message` first. With `application/json` there are no frames: the messages follow
//! each other.
//!
//! `proto` names a file on the node, which is read when the configuration is loaded. Its imports are looked for in its own folder,
//! `/usr/local/kong/include`, `/usr/local/opt/protobuf/include`, `/usr/include` and `kong/include`. JSON is that of protocol
//! buffers, with the names of fields as in the file, numbers of 64 bits as numbers, and fields that have their default. Unknown
//! members of a request are ignored.
//!
//! Binary messages of requests pass as they come, so that a client that can, such as one over HTTP/2, may go on with a call while it is
//! answered. Others are translated once the body is whole.
//!
//! A request for `OPTIONS` is answered with the headers that browsers need for requests of other origins. Beside cors, which answers it
//! instead, `Access-Control-Allow-Origin` is still that of `allow_origin_header`: where cors has `credentials`, write the origin of
//! the pages there.
//!
//! ## Responses
//!
//! | status | body | when |
//! |---|---|---|
//! | 200 | `OK` | the method is `OPTIONS` |
//! | 400 | what is wrong | the type is not one of these, or needs `proto`, the file has no such method, or the body is not what its type says |
//! | 413 | `Payload too large` | a body that is translated is longer than 1 MiB, or a larger `client_body_buffer_size`. Binary messages are not translated |
//!
//! Where a message cannot be translated into JSON, the response ends with `grpc-status` 13. It may have 8 MiB, 64 MiB as JSON, and about 128 MiB in memory.
//!
//! An upstream that answers with something else than gRPC is passed on as it is.

mod filter;
mod media_type;
mod warnings;

use crate::shared::grpc::warnings::untranslatable;
use crate::shared::grpc::{frames, is_grpc, schema};
use filter::{Filter, trailer_frame};
use media_type::{MediaType, Messages};
use prost_reflect::{DescriptorPool, MethodDescriptor};
use std::collections::HashMap;
use weir_plugin::{
    AccessEffect, BuildContext, Document, EntityWarning, Exchange, Flow, Headers, Hooks, LocalResponse,
    Method, Phases, Plugin, Record, UpstreamOutcome, WantsBody,
};

/// Reads a body as clients with base64 send it, and one that was encoded in these two pieces, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_text(body: &[u8], [first, second]: [&[u8]; 2]) {
    let Some(text) = media_type::find(b"application/grpc-web-text") else { return };
    if let Some(decoded) = text.decoded(body) {
        let _ = text.message(decoded);
    }
    let pieces = [text.encoded(first.to_vec()), text.encoded(second.to_vec())].concat();
    assert_eq!(text.decoded(&pieces), Some([first, second].concat()));
}

/// How messages are translated.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The path of a `.proto` file, for messages as JSON.
    pub proto: Option<String>,
    /// Asks the upstream for the path without what the route strips.
    pub pass_stripped_path: Option<bool>,
    /// The value of `Access-Control-Allow-Origin`.
    #[field(nullable, default = "*")]
    pub allow_origin_header: String,
}

/// One configured instance.
pub(super) struct GrpcWeb {
    config: Config,
    /// By their paths, `/package.Service/Method`; none without a file.
    methods: Option<HashMap<String, MethodDescriptor>>,
}

/// What is known of a request once it goes to the upstream.
#[derive(Clone)]
struct Call {
    media_type: &'static MediaType,
    /// For messages as JSON.
    method: Option<MethodDescriptor>,
}

impl Plugin for GrpcWeb {
    const NAME: &'static str = "grpc-web";
    const PRIORITY: i32 = 3;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn document_warnings(document: &Document) -> Vec<EntityWarning> {
        let mut found = untranslatable(document, Self::NAME);
        found.extend(warnings::any_origin_with_credentials(document));
        found
    }

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let methods = config.proto.as_deref().map(schema::load).transpose()?;
        Ok(Self { methods: methods.as_ref().map(by_path), config })
    }
}

fn by_path(pool: &DescriptorPool) -> HashMap<String, MethodDescriptor> {
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods
        .map(|method| (format!("/{}/{}", method.parent_service().full_name(), method.name()), method))
        .collect()
}

impl Hooks for GrpcWeb {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Translated
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
            return Flow::Respond(self.preflight());
        }
        let path = match self.config.pass_stripped_path {
            Some(true) => exchange.upstream_target_path(),
            _ => exchange.path().to_owned(),
        };
        match self.call(exchange, &path).and_then(|call| self.translate(exchange, call)) {
            Ok(call) => {
                exchange.set_upstream_path(path);
                self.send(exchange, call);
                Flow::Continue
            }
            Err(answer) => Flow::Respond(*answer),
        }
    }

    fn response(&self, exchange: &mut Exchange) {
        let headers = &mut exchange.response.headers;
        headers.set("Access-Control-Allow-Origin", self.config.allow_origin_header.as_bytes());
        let is_grpc = is_grpc(headers.get("Content-Type"));
        let Some(call) = exchange.extensions.get::<Call>().cloned().filter(|_| is_grpc) else { return };
        exchange.response.headers.set("Content-Type", call.media_type.name.as_bytes());
        exchange
            .filter_response_body(Filter::new(call.media_type, call.method.map(|method| method.output())));
    }
}

impl GrpcWeb {
    fn preflight(&self) -> LocalResponse {
        LocalResponse::raw(200, Some("application/grpc-web-text+proto"), "OK")
            .header("Access-Control-Allow-Methods", "POST")
            .header("Access-Control-Allow-Headers", "content-type,x-grpc-web,x-user-agent")
    }

    fn call(&self, exchange: &Exchange, path: &str) -> Result<Call, Box<LocalResponse>> {
        let media_type = exchange.request.headers.get("Content-Type").and_then(media_type::find);
        let media_type = media_type.ok_or_else(|| bad_request("the Content-Type is not one of gRPC-Web"))?;
        if media_type.messages == Messages::Proto {
            return Ok(Call { media_type, method: None });
        }
        let needs_file = || bad_request("transcoding requests require a .proto file defining the service");
        let methods = self.methods.as_ref().ok_or_else(needs_file)?;
        let method = methods.get(path).cloned();
        let method = method.ok_or_else(|| bad_request(&format!("Unknown path {path:?}")))?;
        Ok(Call { media_type, method: Some(method) })
    }

    /// Replaces the body by the messages that the upstream gets, unless they are these already.
    fn translate(&self, exchange: &mut Exchange, call: Call) -> Result<Call, Box<LocalResponse>> {
        if call.media_type.is_binary() {
            return Ok(call);
        }
        if exchange.body().is_none() && exchange.has_body() {
            return Err(Box::new(LocalResponse::error(413, "Payload too large")));
        }
        let body = exchange.body().unwrap_or_default();
        let body = call.media_type.decoded(body).ok_or_else(|| bad_request("the body is not base64"))?;
        let body = match &call.method {
            None => body,
            Some(method) => {
                let message =
                    call.media_type.message(body).ok_or_else(|| bad_request("the body has no message"))?;
                let message = schema::from_json(method.input(), &message);
                let message =
                    message.map_err(|error| bad_request(&format!("the message is not valid: {error}")))?;
                frames::framed(frames::MESSAGE, &message)
            }
        };
        exchange.set_body(body);
        Ok(call)
    }

    fn send(&self, exchange: &mut Exchange, call: Call) {
        let headers = &mut exchange.request.headers;
        headers.set("Content-Type", b"application/grpc");
        headers.remove("grpc-accept-encoding");
        let media_type = call.media_type;
        exchange.extensions.insert(call);
        exchange.replace_upstream_response(move |exchange, outcome| {
            // The client's own again: what the gateway answers by itself is no answer of gRPC.
            exchange.request.headers.set("Content-Type", media_type.name.as_bytes());
            (outcome == UpstreamOutcome::Answered).then(|| without_messages(exchange, media_type))?
        });
    }
}

/// The response to a call whose upstream sent trailers alone, which have come as headers.
fn without_messages(exchange: &mut Exchange, media_type: &MediaType) -> Option<LocalResponse> {
    let headers = &exchange.response.headers;
    let is_alone = is_grpc(headers.get("Content-Type")) && headers.get("grpc-status").is_some();
    if !is_alone || !media_type.has_frames {
        return None;
    }
    let is_own = |name: &[u8]| name.eq_ignore_ascii_case(b"content-type") || name.starts_with(b"grpc-");
    let mut trailers = Headers::default();
    let of_call = headers.iter().filter(|field| field.name.starts_with(b"grpc-"));
    of_call.for_each(|field| trailers.append(&*String::from_utf8_lossy(field.name), field.value));
    let body = media_type.encoded(trailer_frame(Some(&trailers)));
    let passed = headers.iter().filter(|field| !field.known.is_hop_by_hop() && !is_own(field.name));
    let answer = LocalResponse::raw(200, Some(media_type.name), body);
    Some(passed.fold(answer, |answer, field| {
        answer.header(String::from_utf8_lossy(field.name).into_owned(), field.value)
    }))
}

fn bad_request(why: &str) -> Box<LocalResponse> {
    Box::new(LocalResponse::raw(400, Some("text/plain; charset=utf-8"), why.to_owned()))
}
