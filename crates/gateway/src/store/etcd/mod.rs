//! The etcd of an APISIX installation. It holds APISIX's objects; entities derive from them when they are read, so that
//! nodes of both kinds share one configuration.
//!
//! ```text
//! etcd ─► watch ─► feed ─► content: objects, translated, checked ─► changes of entities ─► registry
//! ```
//! An object that cannot be translated, and what refers to it, is not active: it is logged, and shown by `/status`.
mod client;
mod content;
mod encryption;
mod feed;
mod message;

pub(crate) use content::Check;

use super::{Committed, Loaded, Pending, Revision, Since, Store, StoreError, UnusableObject};
use crate::apisix::object::{Key, Kind};
use crate::settings::{EtcdEndpoints, Keyring, Settings};
use client::EtcdClient;
use content::Content;
use encryption::encrypt;
use feed::{Feed, Taken, fill};
use message::{
    Compare, DeleteRangeRequest, KeyValue, Operation, PutRequest, RangeRequest, RangeResponse, RequestOp,
    ResponseHeader, TxnRequest, TxnResponse,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Change, PluginSchema};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";

/// How many keys are read at a time.
const PAGE: i64 = 500;

/// How many operations etcd takes in one transaction, unless `--max-txn-ops` says otherwise.
const MAX_TXN_OPS: usize = 128;

/// How long to wait for the events that a write lost against.
const MAX_CATCH_UP: Duration = Duration::from_secs(5);

/// Objects in etcd.
pub(crate) struct Etcd {
    client: Arc<EtcdClient>,
    /// Ends with a slash.
    prefix: String,
    keyring: Keyring,
    content: Arc<Mutex<Content>>,
    watch: Mutex<Watching>,
    arrived: Arc<Notify>,
    absorbed: tokio::sync::Mutex<Absorbed>,
}

/// What the content has taken of the feed.
#[derive(Default)]
struct Absorbed {
    /// Up to this revision.
    revision: i64,
    /// Which the registry does not know yet.
    changes: Vec<Change>,
}

/// The watch that fills the current feed.
struct Watching {
    feed: Arc<Feed>,
    task: Option<AbortHandle>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Etcd {
    /// The etcd that the settings name. Connects on first use.
    pub(crate) fn of(
        endpoints: &EtcdEndpoints,
        settings: &Settings,
        plugins: Vec<PluginSchema>,
        check: Check,
    ) -> Result<Etcd, StoreError> {
        let prefix = format!("{}/", settings.apisix_etcd_prefix.trim_end_matches('/'));
        let keyring = settings.apisix_keyring.clone();
        let content = Content::new(&prefix, keyring.clone(), plugins, check);
        let arrived = Arc::new(Notify::new());
        Ok(Etcd {
            client: Arc::new(EtcdClient::of(endpoints.clone(), settings)?),
            prefix,
            keyring,
            content: Arc::new(Mutex::new(content)),
            watch: Mutex::new(Watching {
                feed: Arc::new(Feed::after(&ResponseHeader::default(), arrived.clone())),
                task: None,
            }),
            arrived,
            absorbed: Default::default(),
        })
    }

    fn feed(&self) -> Arc<Feed> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).feed.clone()
    }

    /// Everything below the prefix, as of one revision.
    async fn all(&self) -> Result<(ResponseHeader, Vec<KeyValue>), StoreError> {
        let (mut pairs, mut header) = (Vec::<KeyValue>::new(), ResponseHeader::default());
        let mut key = self.prefix.clone().into_bytes();
        loop {
            let range_end = range_end(&self.prefix);
            let revision = header.revision;
            let request = RangeRequest { key: key.clone(), range_end, limit: PAGE, revision };
            let page: RangeResponse = self.client.call(RANGE, &request).await?;
            if revision == 0 {
                header = page.header.unwrap_or_default();
            }
            pairs.extend(page.kvs);
            match pairs.last().filter(|_| page.more) {
                Some(last) => key = [&last.key[..], &[0]].concat(),
                None => return Ok((header, pairs)),
            }
        }
    }

    /// Begins to watch what comes after what was read.
    fn watch_after(&self, header: &ResponseHeader) {
        let feed = Arc::new(Feed::after(header, self.arrived.clone()));
        let task = tokio::spawn(fill(self.client.clone(), self.prefix.clone(), feed.clone()));
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        *watch = Watching { feed, task: Some(task.abort_handle()) };
    }

    /// Works on the content on another thread, because it may take long.
    async fn on_content<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Content) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let content = self.content.clone();
        let done = spawn_blocking(move || work(&mut locked(&content))).await;
        done.map_err(|error| {
            StoreError::Broken(format!("{}: {error}; this is a defect", self.client.place()))
        })
    }

    async fn read(&self) -> Result<Loaded, StoreError> {
        let mut absorbed = self.absorbed.lock().await;
        let (header, pairs) = self.all().await?;
        let revision = header.revision;
        let replace = move |content: &mut Content| {
            content.replace(pairs);
            content.entities().iter().cloned().collect()
        };
        let entities = self.on_content(replace).await?;
        self.refuse_gaps()?;
        *absorbed = Absorbed { revision, changes: Vec::new() };
        self.watch_after(&header);
        Ok(Loaded { revision: Revision(revision.cast_unsigned()), entities })
    }

    fn refuse_gaps(&self) -> Result<(), StoreError> {
        let missed = locked(&self.content).missed();
        missed.map_or(Ok(()), |missed| Err(StoreError::Broken(format!("{}: {missed}", self.client.place()))))
    }

    async fn news(&self, base: Revision) -> Result<Since, StoreError> {
        let mut absorbed = self.absorbed.lock().await;
        if !self.absorb(&mut absorbed).await? {
            return Ok(Since::Lost);
        }
        self.refuse_gaps()?;
        let revision = Revision(absorbed.revision.cast_unsigned());
        // A write of this node is known before its event arrives. What comes before it would undo it.
        if revision < base || absorbed.changes.is_empty() {
            return Ok(Since::Changes { revision: base, changes: Vec::new() });
        }
        Ok(Since::Changes { revision, changes: std::mem::take(&mut absorbed.changes) })
    }

    /// Applies what the feed has to the content. False if the feed has lost something.
    async fn absorb(&self, absorbed: &mut Absorbed) -> Result<bool, StoreError> {
        let Taken::Events(revision, events) = self.feed().take()? else { return Ok(false) };
        let changes = self.on_content(move |content| content.apply(events)).await?;
        absorbed.changes.extend(changes);
        absorbed.revision = revision;
        Ok(true)
    }

    async fn write(&self, base: Revision, changes: &[Change]) -> Result<Committed, StoreError> {
        let mut absorbed = self.absorbed.lock().await;
        // The write was decided without them.
        if !absorbed.changes.is_empty() {
            return Ok(Committed::Outdated);
        }
        let mut revision = absorbed.revision.max(base.0.cast_signed());
        let mut operations = self.operations(changes)?;
        while !operations.is_empty() {
            let rest = operations.split_off(operations.len().min(MAX_TXN_OPS));
            let request = TxnRequest { compare: self.unchanged_since(revision), success: operations };
            let reply: TxnResponse = self.client.call_once(TXN, &request).await?;
            if !reply.succeeded {
                let _ = timeout(MAX_CATCH_UP, self.feed().reached(revision + 1)).await;
                return Ok(Committed::Outdated);
            }
            revision = reply.header.map_or(revision, |header| header.revision);
            operations = rest;
        }
        // So that the next write knows the keys of what this one has created.
        let _ = timeout(MAX_CATCH_UP, self.feed().reached(revision)).await;
        if let Err(error) = self.absorb(&mut absorbed).await {
            tracing::debug!(%error, "a write is stored, and its event has not arrived");
        }
        Ok(Committed::At(Revision(revision.cast_unsigned())))
    }

    /// The condition that no object has changed after a revision.
    fn unchanged_since(&self, revision: i64) -> Vec<Compare> {
        let condition = |kind: Kind| {
            let key = format!("{}{}/", self.prefix, kind.name());
            let (result, target) = (Compare::LESS, Compare::MOD);
            Compare {
                result,
                target,
                range_end: range_end(&key),
                key: key.into(),
                mod_revision: revision + 1,
            }
        };
        Kind::ALL.into_iter().filter(|kind| *kind != Kind::Credentials).map(condition).collect()
    }

    /// The last change of each object. The entities that derive from objects are not stored.
    fn operations(&self, changes: &[Change]) -> Result<Vec<RequestOp>, StoreError> {
        let mut operations = BTreeMap::new();
        for change in changes {
            match (&change.entity, change.kind) {
                (Some(Entity::ApisixObjects(object)), _) => {
                    let mut value = object.value.clone();
                    if let Some(key) = Key::of(object) {
                        encrypt(key.kind, &mut value, &self.keyring);
                    }
                    let key = format!("{}{}", self.prefix, object.key).into_bytes();
                    let put = PutRequest { key, value: value.to_string().into() };
                    operations.insert(change.id, Operation::Put(put));
                }
                (None, EntityKind::ApisixObjects) => {
                    let delete = Operation::Delete(DeleteRangeRequest { key: self.key_of(change)? });
                    operations.insert(change.id, delete);
                }
                _ => {}
            }
        }
        Ok(operations.into_values().map(|operation| RequestOp { operation: Some(operation) }).collect())
    }

    /// The key in etcd of an object that is deleted.
    fn key_of(&self, change: &Change) -> Result<Vec<u8>, StoreError> {
        let content = locked(&self.content);
        match content.entities().get(change.kind, change.id) {
            Some(Entity::ApisixObjects(object)) => Ok(format!("{}{}", self.prefix, object.key).into_bytes()),
            _ => Err(StoreError::Unavailable(format!(
                "{}: the object is not known yet: try again",
                self.client.place()
            ))),
        }
    }
}

impl Store for Etcd {
    fn load(&self) -> Pending<'_, Loaded> {
        Box::pin(self.read())
    }

    fn commit<'a>(&'a self, base: Revision, changes: &'a [Change]) -> Pending<'a, Committed> {
        Box::pin(self.write(base, changes))
    }

    fn since(&self, revision: Revision) -> Pending<'_, Since> {
        Box::pin(self.news(revision))
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.arrived.notified().await;
            Ok(())
        })
    }

    fn is_translated(&self) -> bool {
        true
    }

    fn unusable(&self) -> Vec<UnusableObject> {
        locked(&self.content).unusable()
    }
}

fn locked(content: &Mutex<Content>) -> MutexGuard<'_, Content> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key behind all those that begin with a prefix that ends with a slash.
fn range_end(prefix: &str) -> Vec<u8> {
    format!("{}0", prefix.trim_end_matches('/')).into_bytes()
}
