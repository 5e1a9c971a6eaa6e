use super::*;
use hickory_resolver::proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const HOUR: Duration = Duration::from_secs(3600);
const MOMENT: Duration = Duration::from_millis(1);

/// A DNS server on loopback that answers from a table and remembers what it was asked.
struct Dns {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    zone: Mutex<HashMap<String, Vec<(u32, RData)>>>,
    asked: Mutex<Vec<(String, RecordType)>>,
    broken: AtomicBool,
    silent: AtomicBool,
    /// Set by a test to delay answers.
    held: AtomicBool,
    stopped: AtomicBool,
}

impl Dns {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let dns = Self { address: socket.local_addr().unwrap(), state: Arc::default() };
        let state = dns.state.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((length, client)) = socket.recv_from(&mut buffer) {
                if state.stopped.load(Ordering::SeqCst) {
                    return;
                }
                if let Some(reply) = state.reply(&Message::from_vec(&buffer[..length]).unwrap()) {
                    socket.send_to(&reply.to_vec().unwrap(), client).unwrap();
                }
            }
        });
        dns
    }

    fn set(&self, name: &str, records: &[(u32, RData)]) {
        self.state.zone.lock().unwrap().insert(name.into(), records.to_vec());
    }

    fn hold(&self, held: bool) {
        self.state.held.store(held, Ordering::SeqCst);
    }

    fn asked(&self) -> Vec<(String, RecordType)> {
        self.state.asked.lock().unwrap().clone()
    }

    fn asked_for(&self, name: &str, kind: RecordType) -> usize {
        self.asked().iter().filter(|query| **query == (name.to_owned(), kind)).count()
    }

    fn resolver(&self, change: impl FnOnce(&mut ResolverOptions)) -> Resolver {
        let mut options = ResolverOptions {
            servers: vec![self.address],
            resolv_conf: "/nonexistent".into(),
            hosts_file: None,
            timeout: Duration::from_secs(20),
            error_ttl: HOUR,
            ..ResolverOptions::default()
        };
        change(&mut options);
        Resolver::new(options).unwrap()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"", self.address).unwrap();
    }
}

impl State {
    fn reply(&self, query: &Message) -> Option<Message> {
        let question = query.queries[0].clone();
        let name = question.name.to_string().to_lowercase();
        self.asked.lock().unwrap().push((name.clone(), question.query_type));
        while self.held.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        if self.silent.load(Ordering::SeqCst) {
            return None;
        }
        let mut reply = Message::new(query.metadata.id, MessageType::Response, OpCode::Query);
        match self.zone.lock().unwrap().get(&name) {
            _ if self.broken.load(Ordering::SeqCst) => reply.metadata.response_code = ResponseCode::ServFail,
            None => reply.metadata.response_code = ResponseCode::NXDomain,
            Some(records) => {
                for (ttl, data) in
                    records.iter().filter(|(_, data)| data.record_type() == question.query_type)
                {
                    reply.add_answer(Record::from_rdata(question.name.clone(), *ttl, data.clone()));
                }
            }
        }
        reply.add_query(question);
        Some(reply)
    }
}

fn a(last: u8) -> RData {
    RData::A(A::new(192, 0, 2, last))
}

fn srv(priority: u16, weight: u16, port: u16, target: &str) -> RData {
    RData::SRV(SRV::new(priority, weight, port, Name::from_ascii(target).unwrap()))
}

fn plain(text: &str) -> Address {
    Address::plain(text.parse().unwrap())
}

async fn ips(resolver: &Resolver, host: &str) -> Vec<String> {
    let addresses = resolver.resolve(host).await.unwrap();
    addresses.entries.iter().map(|entry| entry.ip.to_string()).collect()
}

/// Resolves until the answer is the expected one, or the test harness times out.
async fn until(resolver: &Resolver, host: &str, expected: Result<&str, ResolveError>) {
    let outcome = async {
        loop {
            let outcome = resolver.resolve(host).await.map(|addresses| addresses.entries[0].ip.to_string());
            if outcome.as_deref().map_err(Clone::clone) == expected {
                return;
            }
            tokio::time::sleep(MOMENT).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), outcome).await.unwrap();
}

#[tokio::test]
async fn literals_and_the_hosts_file_need_no_query() {
    let dns = Dns::start();
    let hosts = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        hosts.path(),
        "# 10.0.0.9 no\n10.0.0.1 One one.test # two\nfe80::1 one.test\n::1 six\nbad line\n",
    )
    .unwrap();
    let resolver = dns.resolver(|options| options.hosts_file = Some(hosts.path().into()));
    assert_eq!(ips(&resolver, "203.0.113.7").await, ["203.0.113.7"]);
    assert_eq!(ips(&resolver, "2001:db8::7").await, ["2001:db8::7"]);
    assert_eq!(ips(&resolver, "[2001:db8::7]").await, ["2001:db8::7"]);
    assert_eq!(ips(&resolver, "one").await, ["10.0.0.1"]);
    assert_eq!(ips(&resolver, "ONE.test.").await, ["10.0.0.1"]);
    assert_eq!(ips(&resolver, "six").await, ["::1"]);
    assert_eq!(ips(&resolver, "localhost").await, ["127.0.0.1"]);
    assert_eq!(resolver.resolve("one").await.unwrap().expires, None);
    for host in ["203.0.113.7", "[2001:db8::7]", "ONE.test."] {
        assert_eq!(resolver.cached(host).unwrap().entries.len(), 1, "{host}");
    }
    assert_eq!(dns.asked(), []);
}

#[tokio::test]
async fn the_order_prefers_a_family_of_the_hosts_file() {
    let hosts = Hosts::parse("10.0.0.1 both\n::2 both\n10.0.0.3 four", &[Lookup::Aaaa, Lookup::A]);
    assert_eq!(*hosts.get("both").unwrap().entries, [plain("::2")]);
    assert_eq!(*hosts.get("four").unwrap().entries, [plain("10.0.0.3")]);
    assert_eq!(*hosts.get("localhost").unwrap().entries, [plain("::1")]);
}

#[tokio::test]
async fn an_answer_is_kept_for_its_ttl() {
    let dns = Dns::start();
    dns.set("a.test.", &[(500, a(1)), (300, a(2))]);
    let resolver = dns.resolver(|_| {});
    let before = Instant::now();
    let addresses = resolver.resolve("a.test").await.unwrap();
    assert_eq!(*addresses.entries, [plain("192.0.2.1"), plain("192.0.2.2")]);
    let ttl = Duration::from_secs(300);
    assert!((before + ttl..=Instant::now() + ttl).contains(&addresses.expires.unwrap()));
    assert_eq!(ips(&resolver, "A.Test").await, ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(dns.asked(), [("a.test.".into(), RecordType::SRV), ("a.test.".into(), RecordType::A)]);
}

#[tokio::test]
async fn an_expired_answer_is_asked_for_again_starting_with_what_answered() {
    let dns = Dns::start();
    dns.set("a.test.", &[(300, a(1))]);
    let resolver = dns.resolver(|options| {
        options.valid_ttl = Some(MOMENT);
        options.stale_ttl = Duration::ZERO;
    });
    assert_eq!(ips(&resolver, "a.test").await, ["192.0.2.1"]);
    dns.set("a.test.", &[(300, a(2))]);
    tokio::time::sleep(MOMENT).await;
    assert_eq!(ips(&resolver, "a.test").await, ["192.0.2.2"]);
    assert_eq!(dns.asked_for("a.test.", RecordType::A), 2);
    assert_eq!(dns.asked_for("a.test.", RecordType::SRV), 1);
}

#[tokio::test]
async fn a_stale_answer_is_given_while_a_new_one_is_fetched() {
    let dns = Dns::start();
    dns.set("a.test.", &[(300, a(1))]);
    let resolver = dns.resolver(|options| options.valid_ttl = Some(MOMENT));
    assert_eq!(ips(&resolver, "a.test").await, ["192.0.2.1"]);
    dns.set("a.test.", &[(300, a(2))]);
    tokio::time::sleep(MOMENT).await;
    dns.hold(true);
    for _ in 0..10 {
        assert_eq!(ips(&resolver, "a.test").await, ["192.0.2.1"]);
    }
    dns.hold(false);
    until(&resolver, "a.test", Ok("192.0.2.2")).await;
}

#[tokio::test]
async fn a_stale_answer_outlives_failures_but_not_the_name() {
    let dns = Dns::start();
    dns.set("a.test.", &[(300, a(1))]);
    let resolver = dns.resolver(|options| {
        options.valid_ttl = Some(MOMENT);
        options.error_ttl = MOMENT;
    });
    assert_eq!(ips(&resolver, "a.test").await, ["192.0.2.1"]);
    dns.state.broken.store(true, Ordering::SeqCst);
    // One renewal asks a few times.
    while dns.asked_for("a.test.", RecordType::A) < 40 {
        assert_eq!(ips(&resolver, "a.test").await, ["192.0.2.1"]);
        tokio::time::sleep(MOMENT).await;
    }
    dns.state.broken.store(false, Ordering::SeqCst);
    dns.state.zone.lock().unwrap().clear();
    until(&resolver, "a.test", Err(ResolveError::NotFound)).await;
}

#[tokio::test]
async fn services_bring_ports_and_weights() {
    let dns = Dns::start();
    let services = [
        srv(5, 10, 8001, "one.test."),
        srv(9, 1, 1, "far.test."),
        srv(5, 0, 8002, "two.test."),
        srv(5, 1, 1, "."),
    ];
    dns.set("svc.test.", &services.map(|data| (300, data)));
    dns.set("one.test.", &[(30, a(1)), (300, a(2))]);
    dns.set("two.test.", &[(300, a(3))]);
    let resolver = dns.resolver(|_| {});
    let addresses = resolver.resolve("svc.test").await.unwrap();
    let address = |ip, port, weight, name: &str| Address {
        port: Some(port),
        weight: Some(weight),
        srv_name: Some(name.into()),
        ..plain(ip)
    };
    let expected = [
        address("192.0.2.1", 8001, 10, "one.test"),
        address("192.0.2.2", 8001, 10, "one.test"),
        address("192.0.2.3", 8002, 1, "two.test"),
    ];
    assert_eq!(*addresses.entries, expected);
    let mut counts = [0; 3];
    for turn in 0..11_000 {
        let first = addresses.sockets(80, turn).next().unwrap();
        counts[usize::from(first.ip().to_string().as_bytes()[8] - b'1')] += 1;
    }
    assert!((4_900..5_100).contains(&counts[0]) && (4_900..5_100).contains(&counts[1]), "{counts:?}");
    assert!((950..1_050).contains(&counts[2]), "{counts:?}");
    let two = addresses.srv_name(([192, 0, 2, 3], 8002).into());
    assert_eq!(two.map(|name| &**name), Some("two.test"));
    assert!(addresses.expires.unwrap() <= Instant::now() + Duration::from_secs(30));
    assert_eq!(dns.asked_for("far.test.", RecordType::A), 0);
}

#[tokio::test]
async fn ipv6_is_asked_for_in_its_place_in_the_order() {
    let dns = Dns::start();
    let six = RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 6));
    dns.set("six.test.", &[(300, six.clone())]);
    dns.set("both.test.", &[(300, six), (300, a(1))]);
    let resolver = dns.resolver(|options| options.order = vec![Lookup::A, Lookup::Aaaa]);
    assert_eq!(ips(&resolver, "six.test").await, ["2001:db8::6"]);
    assert_eq!(ips(&resolver, "both.test").await, ["192.0.2.1"]);
    assert_eq!(dns.asked_for("both.test.", RecordType::AAAA), 0);
}

#[tokio::test]
async fn search_domains_complete_short_names() {
    let dns = Dns::start();
    dns.set("api.svc.test.", &[(300, a(1))]);
    let conf = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(conf.path(), "search svc.test\nnameserver 192.0.2.53\n").unwrap();
    let resolver = dns.resolver(|options| options.resolv_conf = conf.path().into());
    assert_eq!(ips(&resolver, "api").await, ["192.0.2.1"]);
    assert_eq!(resolver.resolve("api.").await, Err(ResolveError::NotFound));
}

#[tokio::test]
async fn a_missing_name_is_remembered() {
    let dns = Dns::start();
    let resolver = dns.resolver(|options| options.not_found_ttl = HOUR);
    assert_eq!(resolver.resolve("a.test").await, Err(ResolveError::NotFound));
    dns.set("a.test.", &[(300, a(1))]);
    assert_eq!(resolver.resolve("a.test").await, Err(ResolveError::NotFound));
    assert_eq!(dns.asked_for("a.test.", RecordType::A), 1);
    let impatient = dns.resolver(|options| options.not_found_ttl = MOMENT);
    assert_eq!(impatient.resolve("b.test").await, Err(ResolveError::NotFound));
    dns.set("b.test.", &[(300, a(1))]);
    until(&impatient, "b.test", Ok("192.0.2.1")).await;
}

#[tokio::test]
async fn failures_are_told_apart() {
    let dns = Dns::start();
    dns.state.broken.store(true, Ordering::SeqCst);
    let resolver = dns.resolver(|_| {});
    assert!(matches!(resolver.resolve("a.test").await, Err(ResolveError::Failed(_))));
    let asked = dns.asked().len();
    assert!(matches!(resolver.resolve("a.test").await, Err(ResolveError::Failed(_))));
    assert_eq!(dns.asked().len(), asked);
    assert_eq!(resolver.resolve("a..test").await, Err(ResolveError::InvalidName));
    dns.state.silent.store(true, Ordering::SeqCst);
    let hasty = dns.resolver(|options| options.timeout = Duration::from_millis(20));
    assert_eq!(hasty.resolve("a.test").await, Err(ResolveError::Timeout));
}

#[test]
fn many_that_wait_on_several_runtimes_ask_once() {
    let dns = Dns::start();
    dns.set("a.test.", &[(300, a(1))]);
    let resolver = Arc::new(dns.resolver(|options| options.order = vec![Lookup::A]));
    dns.hold(true);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let resolver = resolver.clone();
                runtime.block_on(async move {
                    let mut waiting = tokio::task::JoinSet::new();
                    for _ in 0..25 {
                        let resolver = resolver.clone();
                        waiting.spawn(async move { ips(&resolver, "a.test").await });
                    }
                    for answer in waiting.join_all().await {
                        assert_eq!(answer, ["192.0.2.1"]);
                    }
                });
            });
        }
        while dns.asked().is_empty() {
            std::thread::yield_now();
        }
        dns.hold(false);
    });
    assert_eq!(dns.asked().len(), 1);
}

#[tokio::test]
async fn a_name_is_renewed_by_one_and_all_are_told() {
    let slot = Cache::new(1).slot("a.test");
    let renewal = slot.begin_renewal().unwrap();
    assert!(slot.begin_renewal().is_none());
    let news = slot.news();
    tokio::pin!(news);
    news.as_mut().enable();
    drop(renewal);
    news.await;
    assert!(slot.begin_renewal().is_some());
}

#[tokio::test]
async fn one_who_gives_up_does_not_hold_up_the_others() {
    let dns = Dns::start();
    dns.set("a.test.", &[(300, a(1))]);
    let resolver = dns.resolver(|options| options.order = vec![Lookup::A]);
    dns.hold(true);
    tokio::time::timeout(MOMENT, resolver.resolve("a.test")).await.unwrap_err();
    dns.hold(false);
    assert_eq!(ips(&resolver, "a.test").await, ["192.0.2.1"]);
    assert_eq!(dns.asked().len(), 1);
}

#[tokio::test]
async fn the_cache_is_bounded() {
    let dns = Dns::start();
    let resolver = dns.resolver(|options| {
        options.cache_size = 64;
        options.order = vec![Lookup::A];
    });
    for i in 0..300 {
        assert_eq!(resolver.resolve(&format!("n{i}.test")).await, Err(ResolveError::NotFound));
    }
    assert!((1..=64).contains(&resolver.cache.len()));
}
