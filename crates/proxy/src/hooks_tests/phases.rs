//! Plugins that run before the route is found, and on each worker.

use super::{HI, TEST_TIMEOUT, request};
use crate::observe::access_log::{AccessLog, Format, Target};
use crate::testing::{Gateway, entity, id};
use crate::{AccessLogs, Listen, Options, Proxy};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;
use weir_plugin::*;

static PLUGINS: &[Definition] = &[define::<Probe>(), define::<Faulty>()];

/// What its instances and workers did.
#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl Events {
    fn push(&self, event: String) {
        self.0.lock().unwrap().push(event);
    }

    /// Those since this was last called, in alphabetical order, because workers have none.
    fn take(&self) -> Vec<String> {
        let mut events = std::mem::take(&mut *self.0.lock().unwrap());
        events.sort();
        events
    }
}

#[derive(Debug, Clone, Record)]
struct Config {
    /// What its rewrite hook does.
    act: String,
}

struct Probe {
    act: String,
    events: Arc<Events>,
}

impl Plugin for Probe {
    const NAME: &'static str = "probe";
    const PRIORITY: i32 = 10;
    const VERSION: &'static str = "1.2.3";
    const INIT: Option<Init> = Some(init);
    const CONFIGURE: Option<Configure<Self>> = Some(configure);
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self { act: config.act, events: build.retained.get() })
    }
}

fn init(worker: &WorkerContext) -> Result<(), String> {
    let (events, index) = (worker.retained.get::<Events>(), worker.index);
    events.push(format!("init {index} of {}", worker.workers));
    worker.spawn(async move { events.push(format!("task {index}")) });
    Ok(())
}

fn configure(worker: &WorkerContext, instances: &[&Probe]) -> Result<(), String> {
    let acts: Vec<_> = instances.iter().map(|probe| probe.act.as_str()).collect();
    worker.retained.get::<Events>().push(format!("configure {}: {}", worker.index, acts.join(" ")));
    Ok(())
}

impl Hooks for Probe {
    fn phases(&self) -> Phases {
        Phases::REWRITE | Phases::RESPONSE | Phases::LOG
    }

    fn rewrite(&self, exchange: &mut Exchange) -> Flow {
        assert!(exchange.route().is_none());
        exchange.request.headers.append("X-Rewritten", self.act.as_bytes());
        match self.act.as_str() {
            "header" => exchange.request.headers.set("X-Version", b"2"),
            "path" => exchange.set_path("v2//./x"),
            "method" => exchange.set_method("PATCH"),
            "respond" => return Flow::Respond(LocalResponse::message(418, "no")),
            "wait" => {
                return Flow::Wait(Box::pin(async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let resume: Resume = Box::new(|exchange| {
                        exchange.request.headers.set("X-Version", b"2");
                        Flow::Continue
                    });
                    resume
                }));
            }
            _ => {}
        }
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        exchange.response.headers.append("X-Answered", self.act.as_bytes());
    }

    fn log(&self, exchange: &mut Exchange) {
        self.events.push(format!("{} logs {}", self.act, exchange.response.status));
    }
}

/// Its work on workers fails, and it runs behind `probe`.
struct Faulty;

impl Plugin for Faulty {
    const NAME: &'static str = "faulty";
    const PRIORITY: i32 = 9;
    const INIT: Option<Init> = Some(|_| panic!("on purpose"));
    const CONFIGURE: Option<Configure<Self>> = Some(|_, _| Err("on purpose".to_owned()));
    type Config = Config;

    fn new(_: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Hooks for Faulty {
    fn phases(&self) -> Phases {
        Phases::REWRITE | Phases::LOG
    }

    fn rewrite(&self, exchange: &mut Exchange) -> Flow {
        exchange.request.headers.append("X-Rewritten", b"faulty");
        Flow::Continue
    }

    fn log(&self, _: &mut Exchange) {}
}

/// A gateway with two services: the requests of version 2 go to `/two`, others to `/one`.
struct Bench {
    gateway: Gateway,
    proxy: Proxy,
    asked: Receiver<String>,
}

impl Bench {
    fn new(plugins: Vec<Value>, workers: usize) -> Self {
        let (reports, asked) = mpsc::channel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                if reports.send(request(&mut stream)).is_err() {
                    return;
                }
                let _ = stream.write_all(HI.as_bytes());
            }
        });
        let mut gateway = Gateway::new();
        let service = |number: u128, path: &str| {
            entity(json!({ "id": id(number), "host": "127.0.0.1", "port": port, "path": path }))
        };
        let second = |number: u128, by: &str, what: Value| {
            let mut route = json!({ "id": id(number), "service": id(0x52), by: what });
            route["hosts"] = json!(["a"]);
            entity(route)
        };
        gateway.document.services = vec![service(0x51, "/one"), service(0x52, "/two")];
        let routes = [
            second(0x62, "headers", json!({ "x-version": ["2"] })),
            second(0x63, "paths", json!(["/v2/x"])),
            second(0x64, "methods", json!(["PATCH"])),
        ];
        gateway.document.routes =
            vec![entity(json!({ "id": id(0x61), "hosts": ["a"], "service": id(0x51) }))];
        gateway.document.routes.extend(routes);
        gateway.document.plugins = plugins.into_iter().map(entity).collect();
        let listen = Listen::http(SocketAddr::from(([127, 0, 0, 1], 0)));
        let off = || AccessLog::open(Target::Stderr, Format::Off).unwrap();
        let logs = AccessLogs { requests: off(), sessions: off() };
        let listen = vec![Listen { http2: true, ..listen }];
        let options = Options { listen, workers, ..Options::default() };
        let proxy = Proxy::start(options, logs, gateway.snapshot_with(PLUGINS), &gateway.retained).unwrap();
        Self { gateway, proxy, asked }
    }

    fn address(&self) -> SocketAddr {
        self.proxy.listening()[0].address.ip().unwrap()
    }

    /// The response to a request of this host.
    fn get(&self, host: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let head = format!("GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    fn asked(&self) -> String {
        self.asked.recv_timeout(TEST_TIMEOUT).unwrap()
    }

    fn publish(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(self.proxy.publish(self.gateway.snapshot_with(PLUGINS)));
    }

    /// What the plugin did since this was last called, once it is enough.
    fn events(&self, enough: impl Fn(&[String]) -> bool) -> Vec<String> {
        let events = self.gateway.retained.get::<Events>();
        let (mut seen, start) = (Vec::new(), Instant::now());
        while !enough(&seen) && start.elapsed() < TEST_TIMEOUT {
            seen.extend(events.take());
            thread::sleep(Duration::from_millis(1));
        }
        seen.sort();
        seen
    }
}

fn plugin(number: u128, name: &str, act: &str) -> Value {
    json!({ "id": id(number), "name": name, "config": { "act": act } })
}

fn probe(act: &str) -> Value {
    plugin(1, "probe", act)
}

#[test]
fn a_rewrite_hook_decides_which_route_is_found() {
    for (act, line) in [
        ("none", "GET /one/a HTTP/1.1\r\n"),
        ("header", "GET /two/a HTTP/1.1\r\n"),
        ("path", "GET /two HTTP/1.1\r\n"),
        ("method", "PATCH /two/a HTTP/1.1\r\n"),
        ("wait", "GET /two/a HTTP/1.1\r\n"),
    ] {
        let bench = Bench::new(vec![probe(act), plugin(2, "faulty", "none")], 1);
        assert!(bench.get("a").ends_with("hi"));
        let asked = bench.asked();
        assert!(asked.starts_with(line), "{act}: {asked}");
        let rewritten: Vec<_> = asked.lines().filter_map(|line| line.strip_prefix("X-Rewritten: ")).collect();
        assert_eq!(rewritten, [act, "faulty"], "once, and the next plugin after it: {asked}");
    }
}

#[test]
fn a_rewrite_hook_that_responds_ends_the_request_with_the_global_plugins() {
    let bench = Bench::new(vec![probe("respond"), plugin(2, "faulty", "none")], 1);
    for host in ["a", "nowhere"] {
        let response = bench.get(host);
        assert!(response.starts_with("HTTP/1.1 418 "), "{response}");
        assert!(response.contains("X-Answered: respond\r\n"), "{response}");
        let logged = |seen: &[String]| seen.iter().any(|event| event == "respond logs 418");
        assert!(logged(&bench.events(logged)));
    }
    assert!(bench.asked.try_recv().is_err(), "the upstream is not asked");
    let bench = Bench::new(vec![probe("header")], 1);
    let response = bench.get("nowhere");
    assert!(
        response.starts_with("HTTP/1.1 404 ") && response.contains("X-Answered: header\r\n"),
        "{response}"
    );
}

#[test]
fn rewrite_runs_with_the_global_configuration_alone() {
    let mut own = plugin(2, "probe", "respond");
    own["route"] = json!(id(0x62));
    let mut of_service = plugin(3, "probe", "respond");
    of_service["service"] = json!(id(0x51));
    let bench = Bench::new(vec![probe("header"), own.clone(), of_service.clone()], 1);
    let response = bench.get("a");
    assert!(response.contains("X-Answered: respond\r\n"), "the route's applies afterwards: {response}");
    let asked = bench.asked();
    assert!(asked.starts_with("GET /two/a ") && asked.contains("X-Rewritten: header\r\n"), "{asked}");
    let bench = Bench::new(vec![own, of_service], 1);
    assert!(bench.get("a").ends_with("hi"));
    assert!(!bench.asked().contains("X-Rewritten"));
}

#[test]
fn rewrite_runs_for_http2_too() {
    let bench = Bench::new(vec![probe("wait")], 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let status = runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(bench.address()).await.unwrap();
        let (mut requests, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get("http://a/a").body(()).unwrap();
        let (response, _) = requests.send_request(request, true).unwrap();
        response.await.unwrap().status()
    });
    assert_eq!(status, 200);
    assert!(bench.asked().starts_with("GET /two/a "));
}

#[test]
fn plugins_work_on_each_worker_and_see_their_instances_when_these_change() {
    let mut bench = Bench::new(vec![probe("none")], 2);
    let both = |event: &str| [0, 1].map(|worker| format!("configure {worker}: {event}"));
    let begun = ["init 0 of 2", "init 1 of 2", "task 0", "task 1"].map(str::to_owned);
    bench.publish();
    assert_eq!(
        bench.events(|seen| seen.len() >= 6),
        [&both("none")[..], &begun].concat(),
        "nothing twice: the second snapshot is the same"
    );
    let mut other = plugin(2, "probe", "header");
    other["route"] = json!(id(0x62));
    bench.gateway.document.plugins.push(entity(other));
    bench.publish();
    let events = bench.gateway.retained.get::<Events>();
    assert_eq!(events.take(), both("none header"), "before the publication ends");
    bench.gateway.document.consumers.pop();
    bench.publish();
    assert_eq!(events.take(), [""; 0], "neither the plugins nor their instances have changed");
    bench.gateway.document.plugins = vec![entity(plugin(3, "faulty", "none"))];
    bench.publish();
    assert_eq!(events.take(), both(""), "no instances any more");
    assert!(bench.get("a").ends_with("hi"), "what fails in one plugin stops no worker");
}
