//! Times a full synchronisation, one change, and a start from the cache; shows the memory of the data plane:
//! `cargo bench -p weir-cluster`, or `-- 1000000` for so many consumers with keys beside 10,000 routes and services.
//!
//! The control plane runs in a process of its own, so that the memory is that of the data plane.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, missing_docs)]
use bytes::Bytes;
use serde_json::json;
use std::io::{BufReader, BufWriter, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use weir_cluster::cache::Cache;
use weir_cluster::sync::message::{Hello, Message, Welcome};
use weir_cluster::sync::{Cohort, ControlSession, Follower, Next, Step, Update, digests};
use weir_model::entity::{CustomEntity, CustomEntitySchema, Entity, EntityKind};
use weir_model::schema::{Json, Record};
use weir_model::{Change, Document, PluginSchema, ReadOptions, Uuid, find_kind};

/// A key of a consumer, as key-auth has it.
#[derive(Clone, PartialEq, Record)]
struct Credential {
    #[field(auto)]
    id: Uuid,
    #[field(foreign = "consumers")]
    consumer: Uuid,
    #[field(auto, unique, secret, literal)]
    key: String,
    ttl: Option<i64>,
    #[field(set, matches = tag)]
    tags: Option<Vec<String>>,
    #[field(auto)]
    created_at: Option<i64>,
}

impl CustomEntity for Credential {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("keyauth_credentials");
}

#[derive(Clone, PartialEq, Record)]
struct NoConfig {}

fn plugins() -> Arc<[PluginSchema]> {
    let mut plugin = PluginSchema::of::<NoConfig>("key-auth");
    plugin.entities = &[Credential::ENTITY];
    Arc::new([plugin])
}

const ROUTES: u64 = 10_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let consumers = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(ROUTES);
    if arguments.iter().any(|argument| argument == "control-plane") {
        return serve(consumers);
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["control-plane", &consumers.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    follow(&mut child);
    child.wait().unwrap();
}

/// A UUID that looks random, as those of databases do.
fn uuid(kind: u64, number: u64) -> Uuid {
    let mut random = fastrand::Rng::with_seed(kind << 32 | number);
    Uuid::from_u128(random.u128(..))
}

fn entity(plugins: &[PluginSchema], kind: &str, id: Uuid, written: &Json) -> Entity {
    let reading = ReadOptions { plugins, references: &(), hash_passwords: false };
    Entity::read(find_kind(plugins, kind).unwrap(), written, &[("id", id)], reading).unwrap()
}

fn route(plugins: &[PluginSchema], number: u64, path: &str) -> Entity {
    let written = json!({ "name": format!("route-{number}"), "paths": [path], "methods": ["GET", "POST"],
        "hosts": [format!("api-{number}.example.com")], "service": { "id": uuid(1, number).to_string() },
        "tags": ["team:payments"], "created_at": 1_700_000_000, "updated_at": 1_700_000_000 });
    entity(plugins, "routes", uuid(2, number), &written)
}

fn document(plugins: &[PluginSchema], consumers: u64) -> Document {
    let mut document = Document::default();
    for number in 0..ROUTES {
        let host = format!("host-{number}.example.com");
        let written =
            json!({ "name": format!("service-{number}"), "host": host, "created_at": 1_700_000_000 });
        document.push(entity(plugins, "services", uuid(1, number), &written));
        document.push(route(plugins, number, &format!("/api/{number}")));
    }
    for number in 0..consumers {
        let written = json!({ "username": format!("consumer-{number}"), "created_at": 1_700_000_000 });
        document.push(entity(plugins, "consumers", uuid(3, number), &written));
        let (consumer, key) = (uuid(3, number).to_string(), uuid(5, number).simple().to_string());
        let written = json!({ "consumer": { "id": consumer }, "key": key, "created_at": 1_700_000_000 });
        document.push(entity(plugins, "keyauth_credentials", uuid(4, number), &written));
    }
    document.sort();
    document
}

/// Reads a message; none at the end.
fn read(from: &mut impl Read) -> Option<Bytes> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut message).ok()?;
    Some(message.into())
}

fn write(to: &mut impl Write, messages: impl IntoIterator<Item = Bytes>) {
    for message in messages {
        to.write_all(&(message.len() as u32).to_be_bytes()).unwrap();
        to.write_all(&message).unwrap();
    }
    to.flush().unwrap();
}

/// The control plane: what the data plane has confirmed is followed by one change, then by the end.
fn serve(consumers: u64) {
    let plugins = plugins();
    let document = Arc::new(document(&plugins, consumers));
    let start = Instant::now();
    let mut cohort = Cohort::new(plugins.clone(), 1, 1, document);
    eprintln!("control plane: digests in {:?}", start.elapsed());
    let start = Instant::now();
    let Next::Draft(draft) = cohort.whole() else { panic!("nothing is encoded yet") };
    let whole = draft.encode();
    let length: usize = whole.messages.iter().map(Bytes::len).sum();
    cohort.keep(whole);
    eprintln!("control plane: {length} bytes encoded in {:?}, {}", start.elapsed(), memory());
    let (mut from, mut to) = (BufReader::new(std::io::stdin()), BufWriter::new(std::io::stdout()));
    let Some(Ok(Message::Hello(hello))) = read(&mut from).map(Message::decode) else { panic!("no hello") };
    let (mut session, welcome) = ControlSession::new(&hello, &cohort, Welcome::default());
    write(&mut to, [welcome.encode()]);
    write(&mut to, session.poll(&mut cohort));
    let mut changes = 0;
    while let Some(message) = read(&mut from) {
        let event = session.receive(Message::decode(message).unwrap(), &cohort).unwrap();
        if event.is_some() && changes < 10 {
            changes += 1;
            let changed = [Change::put(route(&plugins, 7, &format!("/changed/{changes}")))];
            cohort.apply(1 + changes, &changed, digests(&changed));
        } else if event.is_some() {
            return;
        }
        write(&mut to, session.poll(&mut cohort));
    }
}

/// The data plane.
fn follow(control_plane: &mut Child) {
    let (mut from, mut to) =
        (BufReader::new(control_plane.stdout.take().unwrap()), control_plane.stdin.take().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut cache = Cache::open(folder.path(), plugins()).unwrap().cache;
    let mut follower = Follower::new(plugins());
    println!("data plane: {} before", memory());
    write(&mut to, [follower.hello(Hello::default()).encode()]);
    let (mut start, mut served, mut bytes) = (None, Document::default(), 0);
    while let Some(message) = read(&mut from) {
        let start = start.get_or_insert_with(Instant::now);
        bytes += message.len();
        let message = Message::decode(message).unwrap();
        record(&mut cache, &message);
        match follower.receive(message).unwrap() {
            Step::Reply(replies) => write(&mut to, replies.iter().map(Message::encode)),
            Step::Apply(received, replies) => {
                write(&mut to, replies.iter().map(Message::encode));
                match received.update {
                    Update::Whole(document) => served = *document,
                    Update::Changes(changes) => changes.iter().for_each(|change| served.apply(change)),
                }
                let received_in = start.elapsed();
                cache.commit().unwrap();
                let what = format!("{bytes} bytes in {received_in:?}, {:?} with the cache", start.elapsed());
                println!("data plane: {what}, {}", memory());
                bytes = 0;
                write(&mut to, [follower.applied(received.staged, None).encode()]);
                *start = Instant::now();
            }
            other => println!("data plane: {other:?}"),
        }
    }
    let count = served.len();
    drop((served, follower, cache));
    let start = Instant::now();
    let loaded = Cache::open(folder.path(), plugins()).unwrap().loaded.unwrap();
    assert_eq!(loaded.document.len(), count);
    assert!(loaded.document.find(EntityKind::Routes, uuid(2, 7)).is_some());
    println!("data plane: {count} entities from the cache in {:?}, {}", start.elapsed(), memory());
}

fn record(cache: &mut Cache, message: &Message) {
    match message {
        Message::Transfer(header, chunk) => {
            cache.begin(header);
            cache.chunk(chunk);
        }
        Message::Chunk(chunk) => cache.chunk(chunk),
        _ => {}
    }
}

/// The memory of this process, now and at its peak.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_default().trim().to_owned()
    };
    format!("resident {}, peak {}", line("VmRSS:"), line("VmHWM:"))
}
