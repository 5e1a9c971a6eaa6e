//! A gateway with the plugin `facilities`, which uses what the plugin contract offers beside hooks: the tests of `mod.rs`
//! run it.
mod entities;

use bytes::Bytes;
use entities::{Badge, Team};
use http::{Request, Uri};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_gateway::Gateway;
use weir_plugin::{
    AdminHandler, AdminMethod, AdminRequest, AdminResponse, AdminRoute, BuildContext, CustomEntity,
    CustomEntitySchema, Exchange, Flow, Hooks, HttpClient, LocalResponse, Metric, Plugin, Queue, QueueConfig,
    Record, Resume, SharedDict, Timer, define,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Which servers the plugin uses.
#[derive(Debug, Clone, Record)]
struct Config {
    /// Where the queue delivers paths.
    collector: String,
    /// What `/ask` asks.
    server: String,
    #[field(default = {})]
    queue: QueueConfig,
}

struct Facilities {
    dict: SharedDict,
    requests: Metric,
    queue: Queue<String>,
    client: HttpClient,
    server: Uri,
    _timer: Timer,
}

/// How often the timers have run since the start.
#[derive(Default)]
struct Ticks(AtomicU64);

impl Plugin for Facilities {
    const NAME: &'static str = "facilities";
    const PRIORITY: i32 = 100;
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[Badge::ENTITY, Team::ENTITY];
    const ADMIN_ROUTES: &'static [AdminRoute] = &[
        AdminRoute {
            method: AdminMethod::Get,
            path: "/facilities/ticks",
            operation: "get-ticks",
            summary: "How often the timers have run",
            handle: AdminHandler::Now(|request| {
                AdminResponse::json(200, json!({ "ticks": request.retained.get::<Ticks>().0.load(Relaxed) }))
            }),
        },
        AdminRoute {
            method: AdminMethod::Get,
            path: "/facilities/files/{*path}",
            operation: "get-file",
            summary: "A file",
            handle: AdminHandler::Now(no_file),
        },
        AdminRoute {
            method: AdminMethod::Post,
            path: "/facilities/files/{*path}",
            operation: "post-file",
            summary: "Accept a file",
            handle: AdminHandler::Now(|request| {
                AdminResponse::json(202, json!({ "accepted": request.body }))
            }),
        },
    ];
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let client = HttpClient::new(build.tls_dialer(true, "nothing")?);
        let url = |text: &str| text.parse::<Uri>().map_err(|error| error.to_string());
        let (collector, sender) = (url(&config.collector)?, client.clone());
        let deliver = move |paths: Arc<[String]>| {
            let (sender, mut request) = (sender.clone(), Request::new(Bytes::from(paths.join(" "))));
            (*request.method_mut(), *request.uri_mut()) = (http::Method::POST, collector.clone());
            async move { sender.send(request, TIMEOUT).await.map(drop).map_err(|error| error.to_string()) }
        };
        let ticks = build.retained.get::<Ticks>();
        let tick = move || {
            ticks.0.fetch_add(1, Relaxed);
            std::future::ready(())
        };
        Ok(Self {
            dict: build.shared_dict("facilities", 64 * 1024),
            requests: build.counter("facilities_requests_total", "Requests by path", &["path"])?,
            queue: build.queue(config.queue, deliver),
            server: url(&config.server)?,
            client,
            _timer: build.background().every(Duration::from_millis(5), tick),
        })
    }
}

impl Hooks for Facilities {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        self.requests.with(&[exchange.path()]).add(1.0);
        match exchange.path() {
            "/count" => Flow::Respond(match self.dict.incr("requests", 1.0, Some((0.0, None))) {
                Ok(count) => LocalResponse::raw(200, None, count.to_string()),
                Err(error) => LocalResponse::message(500, &error.to_string()),
            }),
            "/ask" => self.ask(),
            _ => Flow::Continue,
        }
    }

    fn log(&self, exchange: &mut Exchange) {
        self.queue.push(exchange.path().to_owned(), exchange.path().len());
    }
}

impl Facilities {
    fn ask(&self) -> Flow {
        let (client, mut request) = (self.client.clone(), Request::new(Bytes::new()));
        *request.uri_mut() = self.server.clone();
        Flow::Wait(Box::pin(async move {
            let answer = match client.send(request, TIMEOUT).await {
                Ok(response) => LocalResponse::raw(response.status().as_u16(), None, response.into_body()),
                Err(error) => LocalResponse::message(502, &error.to_string()),
            };
            let resume: Resume = Box::new(|_| Flow::Respond(answer));
            resume
        }))
    }
}

fn no_file(request: &AdminRequest<'_>) -> AdminResponse {
    AdminResponse::message(404, &format!("there is no file {}", request.parameter("path")))
}

/// A plugin that cannot be added, because the Admin API has its name as a path.
struct Status;

impl Plugin for Status {
    const NAME: &'static str = "status";
    const PRIORITY: i32 = 1;
    type Config = Config;

    fn new(_: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Hooks for Status {}

fn main() -> ExitCode {
    let gateway = Gateway::new().with_plugin(define::<Facilities>());
    match std::env::var_os("WITH_CONFLICT") {
        None => gateway.run(),
        Some(_) => gateway.with_plugin(define::<Status>()).run(),
    }
}
