//! What a seed decides before anything happens: the configuration, the load and the faults.

use super::grpc::{MAX_PAUSE, SENT_AHEAD};
use crate::testing::{entity, id};
use fastrand::Rng;
use serde_json::{Value as Json, json};
use std::time::Duration;
use weir_model::Document;
use weir_simulation::random;

/// The length of the part with faults and load, in milliseconds.
const TROUBLE: u64 = 15_000;

/// A whole simulation.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// Whether the requests are calls of gRPC.
    pub(super) is_grpc: bool,
    /// All targets that any version of the configuration has.
    pub(super) targets: usize,
    pub(super) service: Service,
    buffering: Buffering,
    /// The bytes of a message of gRPC.
    pub(super) message: usize,
    /// How many calls a target takes at once on a connection of HTTP/2.
    pub(super) streams: Option<u32>,
    pub(super) checks: Checks,
    pub(super) outliers: Option<Outliers>,
    pub(super) limits: Limits,
    algorithm: &'static str,
    slow_start: Option<u32>,
    pub(super) retry_budget: Option<u64>,
    pub(super) pool_size: usize,
    pub(super) connection_requests: u32,
    pub(super) latency: Duration,
    pub(super) clients: Vec<Client>,
    pub(super) faults: Vec<Fault>,
    /// When each further version of the configuration is published, and the targets that it has.
    pub(super) versions: Vec<Version>,
}

/// The service's settings. Times are milliseconds.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) retries: usize,
    pub(super) connect_timeout: u64,
    pub(super) read_timeout: u64,
    pub(super) write_timeout: u64,
}

/// The route's settings of bodies.
#[derive(Debug, Clone)]
struct Buffering {
    request: bool,
    response: bool,
}

/// The upstream's health checks.
#[derive(Debug, Clone)]
pub(super) struct Checks {
    pub(super) is_active: bool,
    pub(super) is_passive: bool,
    interval: f64,
    successes: u16,
    pub(super) failures: u16,
    timeout: f64,
}

/// When targets are ejected.
#[derive(Debug, Clone)]
pub(super) struct Outliers {
    errors: u32,
    error_share: Option<u32>,
    pub(super) max_share: usize,
    time: u32,
}

/// Limits of requests in flight.
#[derive(Debug, Clone, Default)]
pub(super) struct Limits {
    pub(super) upstream: Option<usize>,
    pub(super) target: Option<usize>,
    waiting: Option<usize>,
}

/// A client with its connection.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) begins: u64,
    pub(super) requests: usize,
}

/// What a target does from a moment on.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) at: u64,
    pub(super) target: usize,
    pub(super) mode: Mode,
}

/// How a target behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It answers, sometimes late, and closes idle connections.
    Healthy,
    /// It does anything that a broken server does, now and then.
    Flaky,
    /// The same with every request.
    Broken,
    /// It refuses connections.
    Refusing,
    /// It takes neither connections nor requests.
    Silent,
}

/// A version of the configuration.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) at: u64,
    pub(super) targets: Vec<usize>,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Plan {
        let mut random = random(seed, 1);
        let (is_grpc, targets) = (random.u8(..4) == 0, random.usize(1..=5));
        // By numbers of their own, so that the rest of each plan is as it would be without them.
        let mut of_bodies = weir_simulation::random(seed, 5);
        let mut plan = Plan {
            seed,
            is_grpc,
            targets,
            service: service(&mut random),
            buffering: Buffering { request: of_bodies.bool(), response: of_bodies.bool() },
            message: if of_bodies.u8(..4) == 0 { of_bodies.usize(..100_000) } else { 1 },
            streams: (of_bodies.u8(..4) == 0).then(|| of_bodies.u32(1..=4)),
            checks: checks(&mut random),
            outliers: random.bool().then(|| outliers(&mut random)),
            limits: if is_grpc { Limits::default() } else { limits(&mut random) },
            algorithm: random.choice(["round-robin", "least-connections", "latency"]).unwrap(),
            slow_start: (random.u8(..4) == 0).then(|| random.u32(1..20)),
            retry_budget: (random.u8(..3) == 0).then(|| random.u64(..60)),
            pool_size: random.usize(..4),
            connection_requests: random.u32(..6),
            latency: Duration::from_millis(random.u64(1..=20)),
            clients: (0..random.usize(1..=4)).map(|_| client(&mut random)).collect(),
            faults: faults(&mut random, targets),
            versions: versions(&mut random, targets),
        };
        if is_grpc && plan.message > SENT_AHEAD {
            // A healthy target makes room in time.
            plan.service.write_timeout = plan.service.write_timeout.max(2 * MAX_PAUSE);
        }
        // By numbers of its own, too.
        if weir_simulation::random(seed, 4).u8(..8) == 0 {
            plan.faults.clear();
        }
        plan
    }

    /// What the configuration is in one of its versions.
    pub(super) fn document(&self, version: usize) -> Document {
        let Service { retries, connect_timeout, read_timeout, write_timeout } = self.service;
        let protocol = if self.is_grpc { "grpc" } else { "http" };
        let service = json!({ "id": id(0x51), "host": "u", "protocol": protocol, "retries": retries, "connect_timeout": connect_timeout,
            "read_timeout": read_timeout, "write_timeout": write_timeout });
        let upstream = json!({ "id": id(0x71), "name": "u", "algorithm": self.algorithm, "tags": self.tags(),
            "healthchecks": self.checks.json(self.is_grpc) });
        let target = |&target: &usize| {
            let weight = 1 + (self.seed as usize + target) % 3;
            entity(
                json!({ "id": id(0x80 + target as u128), "upstream": id(0x71), "target": name(target), "weight": weight }),
            )
        };
        let route = json!({ "id": id(0x61), "paths": ["/"], "service": id(0x51), "protocols": [protocol],
            "strip_path": !self.is_grpc, "request_buffering": self.buffering.request,
            "response_buffering": self.buffering.response });
        let plugin = json!({ "id": id(0xf1), "name": "version", "config": { "version": version } });
        Document {
            services: vec![entity(service)],
            routes: vec![entity(route)],
            upstreams: vec![entity(upstream)],
            targets: self.versions[version].targets.iter().map(target).collect(),
            plugins: vec![entity(plugin)],
            ..Document::default()
        }
    }

    fn tags(&self) -> Vec<String> {
        let mut tags = Vec::new();
        let mut tag = |name: &str, value: Option<u64>| {
            tags.extend(value.map(|value| format!("weir-{name}:{value}")));
        };
        if let Some(Outliers { errors, error_share, max_share, time }) = self.outliers {
            tag("eject-errors", Some(errors.into()));
            tag("eject-error-share", error_share.map(Into::into));
            tag("eject-max-share", Some(max_share as u64));
            tag("eject-time", Some(time.into()));
        }
        let number = |number: Option<usize>| number.map(|number| number as u64);
        tag("max-requests", number(self.limits.upstream));
        tag("target-max-requests", number(self.limits.target));
        tag("max-waiting", number(self.limits.waiting));
        tag("slow-start", self.slow_start.map(Into::into));
        tag("retry-budget", self.retry_budget);
        tags
    }

    /// When load and faults have ended at the latest.
    pub(super) fn calm_at(&self) -> u64 {
        TROUBLE
    }

    /// How long after that every target that has a way back is in use again.
    pub(super) fn recovery(&self) -> Duration {
        let checks = Duration::from_secs_f64(
            f64::from(self.checks.successes) * (self.checks.interval.max(0.1) + self.checks.timeout) + 2.0,
        );
        let ejection = self.outliers.as_ref().map_or(0, |outliers| outliers.time * 10);
        checks.max(Duration::from_secs(ejection.into())) + Duration::from_secs(2)
    }

    /// The longest that a request may take, whatever happens, in milliseconds.
    pub(super) fn longest_request(&self) -> u64 {
        let Service { retries, connect_timeout, read_timeout, write_timeout } = self.service;
        // Each attempt may lose an idle connection first, and wait anew whenever something moves.
        let attempt = 2 * (connect_timeout + 2 * read_timeout + write_timeout);
        (retries as u64 + 1) * attempt + connect_timeout + super::server::MAX_RESPONSE_TIME
    }
}

impl Limits {
    /// Whether a request may be refused because of them.
    pub(super) fn are_any(&self) -> bool {
        self.upstream.is_some() || self.target.is_some()
    }
}

impl Checks {
    /// How long a probe may take, in milliseconds.
    pub(super) fn timeout(&self) -> u64 {
        (self.timeout * 1000.0) as u64
    }

    fn json(&self, is_grpc: bool) -> Json {
        let counted = |number: u16, is_on: bool| if is_on { number } else { 0 };
        let side = |is_on| {
            let [failures, successes] = [self.failures, self.successes].map(|number| counted(number, is_on));
            let unhealthy =
                json!({ "http_failures": failures, "tcp_failures": failures, "timeouts": failures });
            (json!({ "successes": successes }), unhealthy)
        };
        let ((mut healthy, mut unhealthy), (passing, failing)) =
            (side(self.is_active), side(self.is_passive));
        let interval = if self.is_active { self.interval } else { 0.0 };
        healthy["interval"] = json!(interval);
        unhealthy["interval"] = json!(interval);
        let probe = if is_grpc { "tcp" } else { "http" };
        let active =
            json!({ "type": probe, "healthy": healthy, "unhealthy": unhealthy, "timeout": self.timeout });
        json!({ "active": active, "passive": { "healthy": passing, "unhealthy": failing } })
    }
}

/// A target as the configuration names it.
pub(super) fn name(target: usize) -> String {
    format!("10.0.0.{}:80", target + 1)
}

fn service(random: &mut Rng) -> Service {
    Service {
        retries: random.usize(..=5),
        // Four times the longest latency, as a TCP connection with the settings of HTTP/2 takes, and a margin.
        connect_timeout: random.u64(100..2_000),
        // A healthy target is never silent for so long.
        read_timeout: random.u64(500..3_000),
        write_timeout: random.u64(100..3_000),
    }
}

fn checks(random: &mut Rng) -> Checks {
    Checks {
        is_active: random.bool(),
        is_passive: random.bool(),
        interval: random.u32(1..=8).into(),
        successes: random.u16(1..=3),
        failures: random.u16(1..=5),
        timeout: f64::from(random.u32(5..=20)) / 10.0,
    }
}

fn outliers(random: &mut Rng) -> Outliers {
    Outliers {
        errors: random.u32(1..=3),
        error_share: random.bool().then(|| random.u32(10..=90)),
        max_share: random.usize(1..=100),
        time: random.u32(1..=5),
    }
}

fn limits(random: &mut Rng) -> Limits {
    let mut some = |most: usize| (random.u8(..4) == 0).then(|| random.usize(1..=most));
    Limits { upstream: some(4), target: some(2), waiting: some(3) }
}

fn client(random: &mut Rng) -> Client {
    Client { begins: random.u64(..TROUBLE / 2), requests: random.usize(1..=10) }
}

fn faults(random: &mut Rng, targets: usize) -> Vec<Fault> {
    let modes = [Mode::Healthy, Mode::Flaky, Mode::Flaky, Mode::Broken, Mode::Refusing, Mode::Silent];
    let count = random.usize(..=2 * targets + 2);
    let mut faults: Vec<_> = (0..count)
        .map(|_| Fault {
            at: random.u64(..TROUBLE * 3 / 4),
            target: random.usize(..targets),
            mode: random.choice(modes).unwrap(),
        })
        .collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn versions(random: &mut Rng, targets: usize) -> Vec<Version> {
    let mut times: Vec<_> = (0..random.usize(..=3)).map(|_| random.u64(1..TROUBLE)).collect();
    times.sort_unstable();
    let some = |random: &mut Rng| {
        let mut some: Vec<_> = (0..targets).filter(|_| random.u8(..4) > 0).collect();
        if some.is_empty() {
            some.push(random.usize(..targets));
        }
        some
    };
    let first = Version { at: 0, targets: (0..targets).collect() };
    let further = times.into_iter().map(|at| Version { at, targets: some(random) });
    std::iter::once(first).chain(further).collect()
}
