//! Counts in Redis or Valkey, under Kong's keys, so that nodes of both can share them.
//!
//! Concurrent queries are pipelined over one connection to each server.

mod cluster;
mod config;
mod connection;
mod query;

pub(crate) use config::{ClusterNode, Redis};
pub(crate) use query::glob;

use super::quota::{QuotaTake, QuotaTaken};
use super::store::{Add, CounterKey, CounterStore, Pending, Take, Taken, Unavailable};
use super::window::Period;
use cluster::{Cluster, Redirected};
use config::Servers;
use connection::{Connector, Link, unavailable};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, ServerError, Value, cmd, from_redis_value_ref, pipe};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use weir_plugin::BuildContext;

/// A server, or several that form one store.
pub(crate) struct RedisStore {
    connector: Connector,
    servers: Servers,
    place: String,
    timeout: Duration,
    /// None before the first connection and after a failure.
    linked: Mutex<Option<Arc<Linked>>>,
    /// Held while connecting.
    connecting: tokio::sync::Mutex<()>,
}

enum Linked {
    One(Link),
    Cluster(Cluster),
}

impl Linked {
    fn all(&self) -> &[Link] {
        match self {
            Linked::One(link) => std::slice::from_ref(link),
            Linked::Cluster(cluster) => &cluster.masters,
        }
    }

    fn of(&self, key: &str) -> Result<usize, Unavailable> {
        match self {
            Linked::One(_) => Ok(0),
            Linked::Cluster(cluster) => cluster
                .master_of(key)
                .ok_or_else(|| Unavailable("no server has some of the slots: check the cluster".to_owned())),
        }
    }
}

/// Commands for one key, or for keys in its slot.
struct Commands {
    key: String,
    /// Makes the command for the server that has the key.
    make: Box<dyn Fn(&Link) -> Cmd + Send + Sync>,
}

impl RedisStore {
    pub(crate) fn new(config: Redis, build: &BuildContext<'_>) -> Result<Self, String> {
        let dialer = match config.ssl {
            true => build.tls_dialer(config.ssl_verify, "redis.ssl_verify: false")?,
            false => build.dialer(),
        };
        Ok(Self {
            servers: config.servers(),
            place: config.place(),
            timeout: Duration::from_millis(config.timeout.into()),
            connector: Connector::new(dialer, config),
            linked: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    async fn linked(&self) -> Result<Arc<Linked>, Unavailable> {
        if let Some(linked) = self.known() {
            return Ok(linked);
        }
        let _turn = self.connecting.lock().await;
        if let Some(linked) = self.known() {
            return Ok(linked);
        }
        let connector = &self.connector;
        let linked = Arc::new(match &self.servers {
            Servers::One(server) => Linked::One(connector.link(server).await?),
            Servers::Sentinels { master, sentinels, role } => {
                Linked::One(connector.link_by_sentinels(master, sentinels, *role).await?)
            }
            Servers::Cluster(nodes) => Linked::Cluster(Cluster::discover(connector, nodes).await?),
        });
        *self.linked.lock().unwrap_or_else(PoisonError::into_inner) = Some(linked.clone());
        Ok(linked)
    }

    fn known(&self) -> Option<Arc<Linked>> {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops a failed connection, unless it was replaced already.
    fn forget(&self, failed: &Arc<Linked>) {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        if linked.as_ref().is_some_and(|linked| Arc::ptr_eq(linked, failed)) {
            *linked = None;
        }
    }

    /// Waits no longer than the configured timeout.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Unavailable>>) -> Result<T, Unavailable> {
        let done = tokio::time::timeout(self.timeout, work).await.unwrap_or_else(|_| {
            if let Some(linked) = self.known() {
                self.forget(&linked);
            }
            let milliseconds = self.timeout.as_millis();
            Err(Unavailable(format!(
                "no answer within {milliseconds} ms: see that it runs, or raise redis.timeout"
            )))
        });
        done.map_err(|Unavailable(why)| Unavailable(at_place(&self.place, &why)))
    }

    /// Runs all commands, of which the server must take at least one.
    async fn run(&self, commands: &[Commands]) -> Result<Vec<Value>, Unavailable> {
        let answers = self.run_all(commands).await?;
        match answers.iter().map(refusal).collect::<Option<Vec<_>>>().and_then(|all| all.first().cloned()) {
            Some(refusal) => Err(unavailable(&refusal.into())),
            None => Ok(answers),
        }
    }

    /// Runs all commands, in order for each key. A command is sent again over new connections if its slot has moved, if
    /// the server is not the master any more, or if it had closed the connection.
    async fn run_all(&self, commands: &[Commands]) -> Result<Vec<Value>, Unavailable> {
        let mut answers: Vec<Option<Value>> = commands.iter().map(|_| None).collect();
        let tries = match &self.servers {
            Servers::Cluster(_) => self.connector.config.cluster_max_redirections,
            _ => 1,
        };
        for left in (0..=tries).rev() {
            let linked = self.linked().await?;
            match self.run_on(&linked, commands, &mut answers).await? {
                None => break,
                Some(error) if left == 0 => return Err(unavailable(&error)),
                Some(_) => self.forget(&linked),
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Takes from quotas with distinct keys. Each take is atomic.
    pub(super) async fn take_of_quotas(
        &self,
        takes: &[QuotaTake],
    ) -> Result<Vec<Option<QuotaTaken>>, Unavailable> {
        let commands: Vec<_> = takes.iter().map(command_to_take_of_quota).collect();
        self.in_time(async { self.run(&commands).await?.iter().map(read_quota).collect() }).await
    }

    /// Sends the commands that have no reply yet; returns why some still have none.
    async fn run_on(
        &self,
        linked: &Linked,
        commands: &[Commands],
        answers: &mut [Option<Value>],
    ) -> Result<Option<RedisError>, Unavailable> {
        let mut by_server: Vec<(Pipeline, Vec<usize>)> =
            linked.all().iter().map(|_| (pipe(), Vec::new())).collect();
        for (at, command) in commands.iter().enumerate().filter(|(at, _)| answers[*at].is_none()) {
            let server = linked.of(&command.key)?;
            let (pipeline, places) = &mut by_server[server];
            pipeline.add_command((command.make)(&linked.all()[server]));
            places.push(at);
        }
        let mut under_way = JoinSet::new();
        for (link, (pipeline, places)) in linked.all().iter().zip(by_server) {
            if !places.is_empty() {
                under_way.spawn(send(link.connection.clone(), pipeline, places));
            }
        }
        let (mut failed, mut redirected) = (None, Vec::new());
        while let Some(done) = under_way.join_next().await {
            let (sent, places) = done.map_err(|error| Unavailable(error.to_string()))?;
            match sent {
                Err(error) => failed = Some(error),
                Ok(values) => failed = place(values, &places, answers, &mut redirected).or(failed),
            }
        }
        if let Linked::Cluster(cluster) = linked {
            for Redirected { to, what: at } in redirected {
                let command = Redirected { to, what: &commands[at].make };
                answers[at] = Some(cluster.follow(&self.connector, &command).await);
            }
        }
        Ok(failed)
    }
}

async fn send(
    mut connection: MultiplexedConnection,
    pipeline: Pipeline,
    places: Vec<usize>,
) -> (Result<Vec<Value>, RedisError>, Vec<usize>) {
    let mut pipeline = pipeline;
    let sent = pipeline.ignore_errors().query_async::<Vec<Value>>(&mut connection).await;
    (sent, places)
}

/// An error about the value of a key, which the server would return again: it is not a count. Servers before Redis 7
/// report it within an error of the script. Other errors may go away with a new connection.
fn refusal(value: &Value) -> Option<ServerError> {
    let Value::ServerError(error) = value else { return None };
    let details = error.details().filter(|_| error.code() == "ERR").unwrap_or_default();
    let is_of_value =
        ["WRONGTYPE", "not an integer", "would overflow"].iter().any(|said| details.contains(said));
    (error.code() == "WRONGTYPE" || is_of_value).then(|| error.clone())
}

/// Stores each reply in its place; returns the last error among them. `redirected` gets those that a server of a cluster
/// redirects to the one that receives their keys; their reply is nil until that server has replied.
fn place(
    values: Vec<Value>,
    places: &[usize],
    answers: &mut [Option<Value>],
    redirected: &mut Vec<Redirected<usize>>,
) -> Option<RedisError> {
    let mut failed = None;
    for (value, at) in values.into_iter().zip(places) {
        if refusal(&value).is_some() {
            answers[*at] = Some(value);
            continue;
        }
        match value.extract_error() {
            Ok(value) => answers[*at] = Some(value),
            // The slot is moving to another server.
            Err(error) if matches!(error.code(), Some("ASK" | "TRYAGAIN")) => {
                redirected.extend(Redirected::by(&error, *at));
                answers[*at] = Some(Value::Nil);
            }
            Err(error) => failed = Some(error),
        }
    }
    failed
}

impl CounterStore for RedisStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn take<'a>(&'a self, takes: &'a [Take]) -> Pending<'a, Vec<Option<Taken>>> {
        let tagged = matches!(self.servers, Servers::Cluster(_));
        let commands: Vec<_> = takes.iter().map(|take| command_to_take(take, tagged)).collect();
        Box::pin(self.in_time(async move {
            let answers = self.run(&commands).await?;
            answers.iter().map(read_taken).collect()
        }))
    }

    fn add<'a>(&'a self, adds: &'a [Add]) -> Pending<'a, Vec<Option<u64>>> {
        let tagged = matches!(self.servers, Servers::Cluster(_));
        let commands: Vec<_> = adds.iter().map(|add| command_to_add(add, tagged)).collect();
        Box::pin(self.in_time(async move { self.run(&commands).await?.iter().map(read_count).collect() }))
    }

    fn reach(&self) -> Pending<'_, ()> {
        Box::pin(self.in_time(async {
            let linked = self.linked().await?;
            for link in linked.all() {
                let answered = connection::ask::<Value>(&mut link.connection.clone(), &cmd("PING")).await;
                answered.inspect_err(|_| self.forget(&linked))?;
            }
            // Write like a request does: a server may answer PING, and yet refuse to count.
            let probe = Commands {
                key: PROBE.to_owned(),
                make: Box::new(|_| cmd("EVAL").arg(ADD).arg(1).arg(PROBE).arg(0).arg(1).to_owned()),
            };
            self.run(&[probe]).await.map(drop)
        }))
    }
}

/// Fails before anything is counted if a command is not permitted.
const ADD: &str = "redis.call('EXPIRE', KEYS[1], ARGV[2]) local count = redis.call('INCRBY', KEYS[1], ARGV[1]) \
                   redis.call('EXPIRE', KEYS[1], ARGV[2]) return count";

/// The key of the probe. It counts nothing, for a second.
const PROBE: &str = "ratelimit:probe";

/// Kong's key of a window's count. In a cluster all keys of one identifier must be in one slot.
fn key(counted: &CounterKey, period: Period, starts: u64, tagged: bool) -> String {
    let CounterKey { route, service, identifier, of_responses } = counted;
    let (open, close) = if tagged { ("{", "}") } else { ("", "") };
    let (milliseconds, period) = (starts * 1_000, period.name());
    match of_responses {
        None => format!("ratelimit:{open}{route}:{service}:{identifier}{close}:{milliseconds}:{period}"),
        Some(name) => format!(
            "response-ratelimit:{open}{route}:{service}:{identifier}{close}:{milliseconds}:{name}:{period}"
        ),
    }
}

fn command_to_take(take: &Take, tagged: bool) -> Commands {
    let key_at = |period, starts| key(&take.key, period, starts, tagged);
    let keys = take.bounds.iter().map(|bound| key_at(bound.window.period, bound.window.starts));
    let before = take.bounds.iter().filter_map(|bound| Some(key_at(bound.window.period, bound.before?.0)));
    let keys: Vec<_> = keys.chain(before).collect();
    let mut numbers = vec![take.wanted];
    for bound in &take.bounds {
        let (left, length) = bound.before.map_or((0, 1), |(_, slide)| (slide.left, slide.length));
        numbers.extend([bound.admits, bound.window.kept, left, length]);
    }
    let key = keys.first().cloned().unwrap_or_default();
    let make = move |link: &Link| {
        cmd("EVALSHA").arg(&*link.take).arg(keys.len()).arg(&keys).arg(&numbers).to_owned()
    };
    Commands { key, make: Box::new(make) }
}

fn command_to_add(add: &Add, tagged: bool) -> Commands {
    let key = key(&add.key, add.window.period, add.window.starts, tagged);
    let (amount, kept, counted) = (add.amount, add.window.kept, key.clone());
    let make = move |_: &Link| match amount {
        0 => cmd("GET").arg(&counted).to_owned(),
        _ => cmd("EVAL").arg(ADD).arg(1).arg(&counted).arg(amount).arg(kept).to_owned(),
    };
    Commands { key, make: Box::new(make) }
}

fn command_to_take_of_quota(take: &QuotaTake) -> Commands {
    let (key, numbers) = (take.key.clone(), [take.wanted, take.quota.count, take.quota.seconds]);
    let make = move |link: &Link| cmd("EVALSHA").arg(&*link.quota).arg(1).arg(&*key).arg(&numbers).to_owned();
    Commands { key: take.key.to_string(), make: Box::new(make) }
}

fn read<T: redis::FromRedisValue>(value: &Value) -> Result<T, Unavailable> {
    from_redis_value_ref(value)
        .map_err(|_| Unavailable("an answer is in a form that is not known".to_owned()))
}

/// None if the server did nothing. Another program may have written a number below zero.
fn read_count(value: &Value) -> Result<Option<u64>, Unavailable> {
    if refusal(value).is_some() {
        return Ok(None);
    }
    let count: Option<i64> = read(value)?;
    Ok(count.map(|count| count.max(0).cast_unsigned()))
}

fn read_taken(value: &Value) -> Result<Option<Taken>, Unavailable> {
    if refusal(value).is_some() {
        return Ok(None);
    }
    let numbers: Option<Vec<i64>> = read(value)?;
    let numbers: Option<Vec<u64>> =
        numbers.map(|numbers| numbers.into_iter().map(|number| number.max(0).cast_unsigned()).collect());
    let taken = numbers.as_deref().and_then(|numbers| numbers.split_first()).map(|(taken, counts)| Taken {
        taken: *taken,
        counts: counts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
    });
    Ok(taken)
}

fn read_quota(value: &Value) -> Result<Option<QuotaTaken>, Unavailable> {
    if refusal(value).is_some() {
        return Ok(None);
    }
    let numbers: Option<(i64, i64, i64)> = read(value)?;
    let number = |number: i64| number.max(0).cast_unsigned();
    Ok(numbers.map(|(taken, used, left)| QuotaTaken {
        taken: number(taken),
        used: number(used),
        milliseconds_left: number(left),
    }))
}

/// Why a server failed, with its address only once.
fn at_place(place: &str, why: &str) -> String {
    let why = match why.split_once(": ") {
        Some((address, rest)) if place.ends_with(&format!(" {address}")) => rest,
        _ => why,
    };
    format!("{place}: {why}")
}

#[cfg(test)]
mod tests {
    use super::at_place;

    #[test]
    fn an_address_is_written_once() {
        let place = "Redis at 127.0.0.1:1";
        assert_eq!(at_place(place, "127.0.0.1:1: refused"), "Redis at 127.0.0.1:1: refused");
        assert_eq!(at_place(place, "NOAUTH: refused"), "Redis at 127.0.0.1:1: NOAUTH: refused");
        let cluster = "the Redis cluster of a:1";
        assert_eq!(at_place(cluster, "b:2: refused"), "the Redis cluster of a:1: b:2: refused");
    }
}
