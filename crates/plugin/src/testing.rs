//! A gateway in memory, for the plugins' tests: one configuration, requests as text, no sockets.
//!
//! What is wrong in a test panics, as in tests it should.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::engine::{self, BodyMemory, Configuration, Connection, Entities, Heads, Shared, WorkerBodyMemory};
use super::{
    BuildContext, Consumer, ConsumerIndex, Definition, ErrorTemplates, Exchange, FailedTry, Flow, Hooks,
    Json, Retained, Route, Service, Source, Uuid,
};
use serde_json::json;
use std::rc::Rc;
use std::sync::Arc;
use weir_http1::{Limits, RequestHead};
use weir_model::Document;
use weir_model::entity::CustomEntity;
use weir_model::schema::Record;

/// One configuration and what outlives it.
pub struct Gateway {
    /// The configuration, which a test may change.
    pub document: Document,
    /// What outlives it.
    pub retained: Arc<Retained>,
    plugins: &'static [Definition],
    shared: Shared,
}

/// The response to a request, and what went to the upstream.
pub struct Outcome {
    /// The exchange, after the response hooks.
    pub exchange: Exchange,
    /// None if the request passed.
    pub answer: Option<String>,
}

/// Reads a plugin's own entity, whose defaults are filled in.
pub fn custom<T: CustomEntity>(json: Json) -> T {
    T::from_value(&json).unwrap_or_else(|found| panic!("{found:?}"))
}

/// Reads an entity, whose defaults are filled in.
pub fn entity<T: Record>(json: Json) -> Arc<T> {
    Arc::new(T::from_value(&json).unwrap_or_else(|found| panic!("{found:?}")))
}

/// An id that ends in this number.
pub fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

impl Gateway {
    /// Three consumers, Alice, Bob and a guest; one service with one route.
    pub fn new(plugins: &'static [Definition]) -> Self {
        let consumer = |number, username: &str| {
            entity(
                json!({ "id": id(number), "username": username, "custom_id": format!("{username}-custom") }),
            )
        };
        let document = Document {
            services: vec![entity(json!({ "id": id(0x51), "name": "orders", "host": "orders.test" }))],
            routes: vec![entity(
                json!({ "id": id(0x61), "name": "all", "paths": ["/"], "service": id(0x51) }),
            )],
            consumers: vec![consumer(1, "alice"), consumer(2, "bob"), consumer(3, "guest")],
            ..Document::default()
        };
        Self { document, retained: Arc::default(), plugins, shared: Shared::default() }
    }

    /// A global plugin, or what is wrong with its configuration.
    pub fn plugin(&self, name: &str, config: Json) -> Result<Arc<dyn Hooks>, String> {
        self.scoped_plugin(json!({ "name": name, "config": config }))
    }

    /// A plugin entity, or what is wrong with its configuration.
    pub fn scoped_plugin(&self, plugin: Json) -> Result<Arc<dyn Hooks>, String> {
        let mut plugin = plugin;
        plugin["id"] = json!(id(0xf1));
        let mut entity: Arc<weir_model::entity::Plugin> = entity(plugin);
        let definition =
            self.plugins.iter().find(|definition| definition.schema.name == entity.name).unwrap();
        let messages = |found: Vec<weir_model::schema::FieldError>| {
            found.iter().map(|v| format!("{}: {}", v.path, v.message)).collect::<Vec<_>>().join("; ")
        };
        Arc::make_mut(&mut entity).config = definition.schema.check(&entity.config).map_err(messages)?;
        self.build_with(&entity, |build| (definition.build)(&entity.config, build))
    }

    /// What is made of a plugin entity.
    pub fn build_with<T>(
        &self,
        entity: &weir_model::entity::Plugin,
        make: impl FnOnce(&BuildContext<'_>) -> T,
    ) -> T {
        let consumers =
            self.document.consumers.iter().zip(0..).map(|(c, i)| (c.id, ConsumerIndex(i))).collect();
        make(&BuildContext::new(&self.document, &self.retained, entity, &consumers, &self.shared))
    }

    /// A request that matched the first route: lines of a head, then, after an empty line, the body.
    pub fn exchange(&self, request: &str) -> Exchange {
        let service = |id: Uuid| self.document.services.iter().find(|service| service.id == id);
        let view = |route: &Arc<weir_model::entity::Route>| {
            let service =
                route.service.and_then(service).map(|service| Arc::new(Service::new(service.clone())));
            Route::new(route.clone(), service)
        };
        let consumers = self.document.consumers.iter();
        let consumers = consumers.map(|it| Consumer::new(it.clone(), Box::default())).collect();
        let views = Views {
            routes: self.document.routes.iter().map(view).collect(),
            document: self.document.clone(),
        };
        let bodies = Rc::new(WorkerBodyMemory::new(Arc::new(BodyMemory::new(0, 1)), 0));
        matched(Rc::new(Configuration::new(Arc::new(views), consumers, bodies, Rc::new(|_| false))), request)
    }

    /// Runs plugins in their order over a request, to an upstream that answers 200.
    pub fn send(&self, plugins: &[&dyn Hooks], request: &str) -> Outcome {
        run(plugins, self.exchange(request))
    }
}

/// Runs plugins in their order, to an upstream that answers 200.
pub fn run(plugins: &[&dyn Hooks], mut exchange: Exchange) -> Outcome {
    let answer = plugins.iter().find_map(|plugin| match plugin.access(&mut exchange) {
        Flow::Continue => None,
        Flow::Respond(answer) => {
            Some(String::from_utf8(answer.write(&mut exchange, &ErrorTemplates::default()).into()).unwrap())
        }
        Flow::Wait(_) => panic!("no plugin here waits"),
    });
    if answer.is_none() {
        exchange.response.status = 200;
    }
    plugins.iter().for_each(|plugin| plugin.response(&mut exchange));
    Outcome { exchange, answer }
}

impl Outcome {
    /// The status that the client gets.
    pub fn status(&self) -> u16 {
        self.exchange.response.status
    }

    /// A header that the client gets.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.exchange.response.headers.get(name).map(|value| std::str::from_utf8(value).unwrap())
    }

    /// A header that the upstream gets.
    pub fn upstream_header(&self, name: &str) -> Option<&str> {
        self.exchange.request.headers.get(name).map(|value| std::str::from_utf8(value).unwrap())
    }
}

struct Views {
    routes: Vec<Route>,
    document: Document,
}

impl Views {
    fn find(&self, is: impl Fn(&weir_model::entity::Consumer) -> bool) -> Option<ConsumerIndex> {
        self.document.consumers.iter().position(|consumer| is(consumer)).map(|at| ConsumerIndex(at as u32))
    }
}

impl Entities for Views {
    fn route(&self, index: u32) -> Option<&Route> {
        self.routes.get(index as usize)
    }

    fn consumer(&self, id: Uuid) -> Option<ConsumerIndex> {
        self.find(|consumer| consumer.id == id)
    }

    fn consumer_by_username(&self, username: &str) -> Option<ConsumerIndex> {
        self.find(|consumer| consumer.username.as_deref() == Some(username))
    }

    fn has_upstream(&self, name: &str) -> bool {
        self.document.upstreams.iter().any(|upstream| upstream.name == name)
    }
}

/// A request that matched the first route of the configuration.
fn matched(configuration: Rc<Configuration>, request: &str) -> Exchange {
    let (heads, body) = heads(request);
    let origin = (0, *b"0123456789abcdef0123456789abcdef");
    let mut exchange = engine::begin(&Rc::new(connection()), configuration, origin, heads);
    complete(&mut exchange, body);
    exchange
}

/// Has an exchange match the first route, with this body.
pub fn complete(exchange: &mut Exchange, body: &str) {
    exchange.source = Source::Service;
    exchange.engine.body_is_whole = true;
    assert!(exchange.set_body(body.as_bytes().to_vec()));
    exchange.engine.route = Some(0);
}

/// Has the exchange have asked an upstream at this address.
pub fn upstream_asked(exchange: &mut Exchange, address: std::net::SocketAddr) {
    exchange.engine.upstream_addr = Some(address);
}

/// Has the exchange have come from a trusted proxy.
pub fn trusted(mut exchange: Exchange) -> Exchange {
    Rc::get_mut(&mut exchange.engine.connection).unwrap().trusted = true;
    exchange
}

/// Has an attempt of the exchange have failed.
pub fn try_failed(exchange: &mut Exchange, failed: FailedTry) {
    exchange.engine.try_failed(failed);
}

/// Has the exchange have matched no route.
pub fn no_route(exchange: &mut Exchange) {
    exchange.engine.route = None;
}

/// Has the exchange's response say that something failed.
pub fn failed(exchange: &mut Exchange) {
    exchange.engine.failed = true;
}

/// The head of a request, that of a response, and the request's body.
pub fn heads(request: &str) -> (Heads, &str) {
    let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
    let mut request = Box::<RequestHead>::default();
    let mut text =
        head.trim().replace('\n', "\r\n").replacen("\r\n", " HTTP/1.1\r\nHost: gateway.test:8000\r\n", 1);
    if !text.contains("HTTP/1.1") {
        text.push_str(" HTTP/1.1\r\nHost: gateway.test:8000");
    }
    request.parse((text + "\r\n\r\n").as_bytes(), &Limits::default()).unwrap().unwrap();
    ((request, Box::default()), body)
}

/// A client's connection.
pub fn connection() -> Connection {
    let address = |text: &str| text.parse().unwrap();
    let connection = Connection::new(address("192.0.2.1:50000"), address("127.0.0.1:8000"), 7, None, false);
    connection.requests.set(3);
    connection
}

/// Runs the cases of a file: a configuration, a request, and what must come of it.
///
/// `config` is the plugin's, `request` a head and perhaps a body, `status` what the client gets (200 is the
/// upstream's), `body` the answer's or a part of it, `response` and `upstream` headers to the client and to the
/// upstream with null for one that must be absent, `query` and `sent` the query string and body for the upstream,
/// `invalid` a part of what the configuration is refused with.
pub fn check_cases(plugins: &'static [Definition], plugin: &str, file: &str) {
    check_cases_in(|| Gateway::new(plugins), plugin, file);
}

/// Runs the cases of a file in gateways of this configuration.
pub fn check_cases_in(gateway: impl Fn() -> Gateway, plugin: &str, file: &str) {
    let cases: Vec<Json> = serde_json::from_str(file).unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let name = case["case"].as_str().unwrap();
        let gateway = gateway();
        match (gateway.plugin(plugin, case["config"].clone()), case["invalid"].as_str()) {
            (Ok(hooks), None) => {
                check_outcome(name, &case, &gateway.send(&[&*hooks], case["request"].as_str().unwrap()))
            }
            (Err(message), Some(part)) => assert!(message.contains(part), "{name}: {message}"),
            (Ok(_), Some(_)) => panic!("{name}: the configuration was accepted"),
            (Err(message), None) => panic!("{name}: {message}"),
        }
    }
}

fn check_outcome(name: &str, case: &Json, outcome: &Outcome) {
    let known = ["case", "config", "request", "status", "body", "response", "upstream", "query", "sent"];
    let members = case.as_object().unwrap();
    assert!(members.keys().all(|key| known.contains(&key.as_str())), "{name}: unknown member");
    assert_eq!(Some(u64::from(outcome.status())), case["status"].as_u64(), "{name}: {:?}", outcome.answer);
    if let Some(part) = case["body"].as_str() {
        assert!(
            outcome.answer.as_ref().is_some_and(|body| body.contains(part)),
            "{name}: {:?}",
            outcome.answer
        );
    }
    let expected = |of: &str| members.get(of).and_then(Json::as_object).cloned().unwrap_or_default();
    for (header, value) in expected("response") {
        assert_eq!(outcome.header(&header), value.as_str(), "{name}: response {header}");
    }
    for (header, value) in expected("upstream") {
        assert_eq!(outcome.upstream_header(&header), value.as_str(), "{name}: upstream {header}");
    }
    if let Some(query) = members.get("query") {
        assert_eq!(outcome.exchange.query(), query.as_str(), "{name}: query");
    }
    if let Some(body) = members.get("sent") {
        assert_eq!(outcome.exchange.body(), body.as_str().map(str::as_bytes), "{name}: body");
    }
}
