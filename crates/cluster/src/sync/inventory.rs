//! What a node has, by digest: enough to find out what differs between two nodes, however long they were apart.
//!
//! The entities of each kind are spread over 1,024 buckets by their ids. A bucket has the digest of its entities, a kind
//! that of its buckets, and the inventory that of its kinds.
use super::identity::Digest;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::entity::EntityKind;
use weir_model::{Document, Uuid};

/// Into how many buckets the entities of a kind are spread. Both sides must agree on it.
pub const BUCKETS: usize = 1024;

/// An entity's kind and id.
pub type Key = (EntityKind, Uuid);

/// The digest of every entity of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    digest: Digest,
    kinds: BTreeMap<EntityKind, KindInventory>,
}

/// The digests of the entities of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KindInventory {
    digest: Digest,
    len: usize,
    buckets: Box<[Bucket]>,
}

/// Some of the entities of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bucket {
    digest: Digest,
    /// In the order of their ids.
    members: Vec<(Uuid, Digest)>,
}

impl Bucket {
    /// Puts a digest in the place of another, and returns that.
    fn set(&mut self, id: Uuid, digest: Option<Digest>) -> Option<Digest> {
        let place = self.members.binary_search_by_key(&id, |(id, _)| *id);
        let before = place.ok().map(|at| self.members[at].1);
        match (place, digest) {
            (Ok(at), Some(digest)) => self.members[at].1 = digest,
            (Ok(at), None) => drop(self.members.remove(at)),
            (Err(at), Some(digest)) => self.members.insert(at, (id, digest)),
            (Err(_), None) => {}
        }
        exchange(&mut self.digest, before, digest);
        before
    }
}

/// Takes one digest out of a sum and puts another in.
fn exchange(sum: &mut Digest, before: Option<Digest>, after: Option<Digest>) {
    if let Some(before) = before {
        sum.subtract(before);
    }
    if let Some(after) = after {
        sum.add(after);
    }
}

impl KindInventory {
    fn new() -> Self {
        KindInventory { digest: Digest::default(), len: 0, buckets: vec![Bucket::default(); BUCKETS].into() }
    }

    fn set(&mut self, id: Uuid, digest: Option<Digest>) -> Option<Digest> {
        let before = self.buckets[bucket_of(id)].set(id, digest);
        exchange(&mut self.digest, before, digest);
        self.len = self.len + usize::from(digest.is_some()) - usize::from(before.is_some());
        before
    }
}

/// The bucket of an id. Multiplying spreads ids that count up, too.
fn bucket_of(id: Uuid) -> usize {
    const GOLDEN_RATIO: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    (id.as_u128().wrapping_mul(GOLDEN_RATIO) >> (128 - BUCKETS.ilog2())) as usize
}

impl Inventory {
    /// The inventory of a document, as the control plane writes its entities.
    pub fn of(document: &Document) -> Inventory {
        let mut inventory = Inventory::default();
        for entity in document.entities() {
            let body = super::record::body_of(&entity);
            let digest = Digest::of_entity(entity.kind().as_str(), entity.id(), &body);
            inventory.set((entity.kind(), entity.id()), Some(digest));
        }
        inventory
    }

    /// The digest of everything.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Whether there is an entity.
    pub fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    /// The digest of an entity.
    pub fn get(&self, (kind, id): Key) -> Option<Digest> {
        let members = &self.kinds.get(&kind)?.buckets[bucket_of(id)].members;
        members.binary_search_by_key(&id, |(id, _)| *id).ok().map(|at| members[at].1)
    }

    /// The digest of everything after these changes, of which no two are of one entity.
    pub fn digest_after(&self, changes: &[(Key, Option<Digest>)]) -> Digest {
        let mut digest = self.digest;
        changes.iter().for_each(|(key, after)| exchange(&mut digest, self.get(*key), *after));
        digest
    }

    /// Records the digest of an entity, or that it is gone.
    pub fn set(&mut self, (kind, id): Key, digest: Option<Digest>) {
        if digest.is_none() && !self.kinds.contains_key(&kind) {
            return;
        }
        let of_kind = self.kinds.entry(kind).or_insert_with(KindInventory::new);
        let before = of_kind.set(id, digest);
        let is_empty = of_kind.len == 0;
        exchange(&mut self.digest, before, digest);
        if is_empty {
            self.kinds.remove(&kind);
        }
    }

    /// The digest of each kind of which there are entities.
    pub fn kinds(&self) -> impl Iterator<Item = (EntityKind, Digest)> {
        self.kinds.iter().map(|(kind, of_kind)| (*kind, of_kind.digest))
    }

    /// The digest of a kind.
    pub fn kind_digest(&self, kind: EntityKind) -> Digest {
        self.kinds.get(&kind).map(|of_kind| of_kind.digest).unwrap_or_default()
    }

    /// The digests of the buckets of a kind; none if there is no entity of it.
    pub fn buckets(&self, kind: EntityKind) -> Option<impl Iterator<Item = Digest>> {
        self.kinds.get(&kind).map(|of_kind| of_kind.buckets.iter().map(|bucket| bucket.digest))
    }

    /// The entities of a bucket, in the order of their ids.
    pub fn members(&self, kind: EntityKind, bucket: usize) -> &[(Uuid, Digest)] {
        self.kinds.get(&kind).and_then(|of_kind| of_kind.buckets.get(bucket)).map_or(&[], |it| &it.members)
    }

    /// Every entity.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.kinds.iter().flat_map(|(kind, of_kind)| {
            of_kind.buckets.iter().flat_map(|bucket| &bucket.members).map(|(id, _)| (*kind, *id))
        })
    }

    /// The entities that differ from those of another inventory, and those that only one has.
    pub fn differences(&self, other: &Inventory) -> Vec<Key> {
        let kinds: BTreeSet<_> = self.kinds.keys().chain(other.kinds.keys()).copied().collect();
        let differing = kinds.into_iter().filter(|kind| self.kind_digest(*kind) != other.kind_digest(*kind));
        let buckets = differing.flat_map(|kind| (0..BUCKETS).map(move |bucket| (kind, bucket)));
        buckets
            .flat_map(|(kind, bucket)| {
                let ids = differing_ids(self.members(kind, bucket), other.members(kind, bucket));
                ids.into_iter().map(move |id| (kind, id))
            })
            .collect()
    }

    /// Gives back memory that was reserved for growth.
    pub fn shrink(&mut self) {
        let buckets = self.kinds.values_mut().flat_map(|of_kind| of_kind.buckets.iter_mut());
        buckets.for_each(|bucket| bucket.members.shrink_to_fit());
    }
}

/// The ids whose digests differ between two sorted lists, or that only one has.
pub fn differing_ids<D: Copy + PartialEq>(one: &[(Uuid, D)], other: &[(Uuid, D)]) -> Vec<Uuid> {
    let (mut ids, mut rest) = (Vec::new(), other);
    for (id, digest) in one {
        let before = rest.iter().take_while(|(other, _)| other < id).count();
        ids.extend(rest[..before].iter().map(|(id, _)| *id));
        rest = &rest[before..];
        match rest.first() {
            Some((other, same)) if other == id => {
                ids.extend((digest != same).then_some(*id));
                rest = &rest[1..];
            }
            _ => ids.push(*id),
        }
    }
    ids.extend(rest.iter().map(|(id, _)| *id));
    ids
}
