//! Entities by number: names are interned once, where a configuration is compiled, and records carry the number.
use foldhash::HashMap;
use pair_numbers::PairNumbers;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

mod pair_numbers;

/// No entity, such as the consumer of an anonymous request.
pub const NONE: u32 = 0;
/// All entities that are not counted one by one.
pub const OTHERS: u32 = u32::MAX;

/// The most names of a kind. Further ones are [`OTHERS`].
pub const MAX_NAMES: usize = 1 << 18;
/// The longest name in bytes. A longer one is cut.
const MAX_NAME_LEN: usize = 256;
/// The memory of a name beside its text: an `Arc<str>` has two counters before its text, and the map has 8 bytes for an id
/// and its control byte.
const BYTES_PER_NAME: usize = 16 + 2 * size_of::<Arc<str>>() + 8;
/// The most memory of a name.
pub(crate) const MAX_NAME_BYTES: usize = MAX_NAME_LEN + BYTES_PER_NAME;

/// What is counted one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The node as a whole.
    Node,
    /// Routes.
    Route,
    /// Services.
    Service,
    /// Addresses of upstreams.
    Upstream,
    /// Consumers.
    Consumer,
    /// Plugins; they occur in causes.
    Plugin,
    /// Pairs of a consumer and a route. The name of one is that of the consumer, a slash and that of the route.
    Pair,
    /// Language models. Calls of them are counted, not requests.
    Model,
}

impl Kind {
    pub(crate) const ALL: [Kind; 8] = [
        Self::Node,
        Self::Route,
        Self::Service,
        Self::Upstream,
        Self::Consumer,
        Self::Plugin,
        Self::Pair,
        Self::Model,
    ];

    /// The name in queries and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Route => "route",
            Self::Service => "service",
            Self::Upstream => "upstream",
            Self::Consumer => "consumer",
            Self::Plugin => "plugin",
            Self::Pair => "pair",
            Self::Model => "model",
        }
    }

    /// How many entities of the kind are counted one by one.
    pub const fn limit(self) -> usize {
        match self {
            Self::Consumer | Self::Model => 256,
            Self::Pair => 1_024,
            _ => 4_096,
        }
    }

    /// How many names of the kind there are at most, beside those of configured models. Other models are clients' words.
    const fn max_names(self) -> usize {
        match self {
            Self::Model => 1_024,
            _ => MAX_NAMES,
        }
    }

    /// How many names a name needs at most: that of a pair needs those of its consumer and its route.
    pub(crate) fn names_needed(self) -> usize {
        match self {
            Self::Pair => 3,
            _ => 1,
        }
    }

    /// The kind of a stored number.
    pub(crate) fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }
}

/// An entity: its kind and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entity {
    /// What it is.
    pub kind: Kind,
    /// Its number among those of its kind, [`NONE`] or [`OTHERS`].
    pub id: u32,
}

impl Entity {
    /// The node as a whole.
    pub const NODE: Entity = Entity { kind: Kind::Node, id: NONE };

    /// An entity of a kind.
    pub fn new(kind: Kind, id: u32) -> Entity {
        Entity { kind, id }
    }

    /// Whether it has a name of its own.
    pub(crate) fn is_named(self) -> bool {
        self.id != NONE && self.id != OTHERS
    }

    pub(crate) fn key(self) -> u64 {
        (self.kind as u64) << 32 | u64::from(self.id)
    }

    pub(crate) fn from_key(key: u64) -> Option<Entity> {
        let kind = u8::try_from(key >> 32).ok().and_then(Kind::from_number)?;
        Some(Entity { kind, id: key as u32 })
    }
}

/// The names of one kind.
#[derive(Debug, Default)]
struct Names {
    ids: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
    /// How many of them do not count against how many there may be.
    uncounted: usize,
    /// The bytes of all names. They are counted here so that a worker never waits for a walk over the names.
    text_bytes: usize,
}

impl Names {
    fn intern(&mut self, name: &str, most: usize) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        if self.names.len() - self.uncounted >= most {
            return OTHERS;
        }
        self.push(name)
    }

    /// The number of a name that has a place of its own, however many others there are.
    fn intern_uncounted(&mut self, name: &str) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        if self.names.len() >= MAX_NAMES {
            return OTHERS;
        }
        self.uncounted += 1;
        self.push(name)
    }

    fn push(&mut self, name: &str) -> u32 {
        self.text_bytes += name.len();
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        let id = self.names.len() as u32;
        self.ids.insert(name, id);
        id
    }

    fn heap_bytes(&self) -> usize {
        self.text_bytes + self.names.len() * BYTES_PER_NAME
    }
}

#[derive(Debug, Default)]
struct Inner {
    names: [Names; Kind::ALL.len()],
    /// The service of each route, by the route's number.
    services: Vec<u32>,
    pairs: PairNumbers,
}

/// The numbers of entities. Numbers are dense, begin at 1, and stay until the process ends.
///
/// A name is what identifies the entity on every node, such as its id in the configuration or an address. Interning takes
/// a lock, so it belongs to the compilation of a configuration and not to requests.
#[derive(Debug, Default)]
pub struct Entities {
    inner: RwLock<Inner>,
}

impl Entities {
    /// The number of a name. [`NONE`] for an empty one, [`OTHERS`] if there are too many.
    pub fn intern(&self, kind: Kind, name: &str) -> u32 {
        if kind == Kind::Pair {
            return self.intern_named_pair(name);
        }
        if name.is_empty() {
            return NONE;
        }
        let name = &name[..name.floor_char_boundary(MAX_NAME_LEN)];
        self.find(kind, name)
            .unwrap_or_else(|| self.write().names[kind as usize].intern(name, kind.max_names()))
    }

    /// The number of a name that is no client's word: there is room for that of a model, whatever clients have asked for.
    pub(crate) fn intern_beyond(&self, kind: Kind, name: &str) -> u32 {
        if kind != Kind::Model || name.is_empty() {
            return self.intern(kind, name);
        }
        let name = &name[..name.floor_char_boundary(MAX_NAME_LEN)];
        self.find(kind, name).unwrap_or_else(|| self.write().names[kind as usize].intern_uncounted(name))
    }

    /// The number of a route, whose requests count for this service too.
    pub fn intern_route(&self, name: &str, service: u32) -> u32 {
        let id = self.intern(Kind::Route, name);
        if id != NONE && id != OTHERS {
            let services = &mut self.write().services;
            services.resize(services.len().max(id as usize + 1), NONE);
            services[id as usize] = service;
        }
        id
    }

    /// The number of the pair of a consumer and a route. [`NONE`] without a consumer, [`OTHERS`] if there are too many, or
    /// if one of the two has no number of its own.
    pub fn intern_pair(&self, consumer: u32, route: u32) -> u32 {
        if consumer == NONE {
            return NONE;
        }
        if consumer == OTHERS || route == OTHERS {
            return OTHERS;
        }
        let known = self.find_pair(consumer, route);
        known.or_else(|| self.write().pairs.intern((consumer, route))).unwrap_or(OTHERS)
    }

    fn intern_named_pair(&self, name: &str) -> u32 {
        let Some((consumer, route)) = pair_numbers::split(name) else { return NONE };
        self.intern_pair(self.intern(Kind::Consumer, consumer), self.intern(Kind::Route, route))
    }

    /// The name of an entity that has one.
    pub fn name(&self, entity: Entity) -> Option<Arc<str>> {
        if entity.kind == Kind::Pair {
            let (consumer, route) = self.read().pairs.get(entity.id)?;
            let name = |kind, id| self.name(Entity::new(kind, id)).unwrap_or_default();
            let name = pair_numbers::joined(&name(Kind::Consumer, consumer), &name(Kind::Route, route));
            return Some(name.into());
        }
        let place = (entity.id as usize).checked_sub(1)?;
        self.read().names[entity.kind as usize].names.get(place).map(Arc::clone)
    }

    /// The number of a name that is known.
    pub fn find(&self, kind: Kind, name: &str) -> Option<u32> {
        if kind == Kind::Pair {
            let (consumer, route) = pair_numbers::split(name)?;
            let route = if route.is_empty() { NONE } else { self.find(Kind::Route, route)? };
            return self.find_pair(self.find(Kind::Consumer, consumer)?, route);
        }
        self.read().names[kind as usize].ids.get(name).copied()
    }

    /// The number of a pair that is known.
    pub fn find_pair(&self, consumer: u32, route: u32) -> Option<u32> {
        self.read().pairs.find((consumer, route))
    }

    /// The pairs that an entity is in, a consumer or a route: the number of each, and of the other entity.
    pub(crate) fn pairs_of(&self, entity: Entity) -> HashMap<u32, u32> {
        let inner = self.read();
        let others = inner.pairs.iter().filter_map(|(id, (consumer, route))| match entity.kind {
            Kind::Consumer if entity.id == consumer => Some((id, route)),
            Kind::Route if entity.id == route => Some((id, consumer)),
            _ => None,
        });
        others.collect()
    }

    /// The service of a route.
    pub fn service_of(&self, route: u32) -> u32 {
        self.read().services.get(route as usize).copied().unwrap_or(NONE)
    }

    /// The memory of all names, in bytes.
    pub fn heap_bytes(&self) -> usize {
        let inner = self.read();
        let names: usize = inner.names.iter().map(Names::heap_bytes).sum();
        names + inner.services.capacity() * size_of::<u32>() + inner.pairs.heap_bytes()
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number() {
        let entities = Entities::default();
        let service = entities.intern(Kind::Service, "s");
        let route = entities.intern_route("r", service);
        assert_eq!((service, route), (1, 1));
        assert_eq!(entities.intern(Kind::Route, "r"), route);
        assert_eq!(entities.service_of(route), service);
        assert_eq!(entities.name(Entity::new(Kind::Route, route)).as_deref(), Some("r"));
        assert_eq!(entities.intern(Kind::Route, ""), NONE);
        assert_eq!(entities.name(Entity::new(Kind::Route, OTHERS)), None);
        assert_eq!(entities.find(Kind::Consumer, "r"), None);
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let entities = Entities::default();
        let id = entities.intern(Kind::Upstream, &"é".repeat(1_000));
        assert_eq!(entities.name(Entity::new(Kind::Upstream, id)).map(|name| name.len()), Some(256));
    }

    #[test]
    fn a_pair_is_named_after_its_consumer_and_its_route() {
        let entities = Entities::default();
        let (alice, route) = (entities.intern(Kind::Consumer, "alice"), entities.intern_route("r/1", 0));
        let pair = entities.intern_pair(alice, route);
        let name = entities.name(Entity::new(Kind::Pair, pair)).unwrap();
        assert_eq!(&*name, "alice/r/1");
        let elsewhere = Entities::default();
        elsewhere.intern(Kind::Route, "another");
        let copy = elsewhere.intern(Kind::Pair, &name);
        assert_eq!(elsewhere.find(Kind::Pair, &name), Some(copy));
        assert_eq!(elsewhere.name(Entity::new(Kind::Pair, copy)), Some(name));
        let without_route = elsewhere.intern(Kind::Pair, "alice/");
        assert_eq!(elsewhere.name(Entity::new(Kind::Pair, without_route)).as_deref(), Some("alice/"));
        assert_eq!(elsewhere.pairs_of(Entity::new(Kind::Consumer, 1)).len(), 2);
        assert_eq!(elsewhere.pairs_of(Entity::new(Kind::Route, 2)), [(copy, 1)].into_iter().collect());
        for (consumer, route, expected) in [(NONE, 1, NONE), (OTHERS, 1, OTHERS), (1, OTHERS, OTHERS)] {
            assert_eq!(entities.intern_pair(consumer, route), expected);
        }
        assert_eq!((entities.find(Kind::Pair, "bob/r/1"), entities.intern(Kind::Pair, "x")), (None, NONE));
    }

    #[test]
    fn pairs_are_bounded() {
        let entities = Entities::default();
        for route in 1..=pair_numbers::MAX_PAIRS as u32 {
            assert_ne!(entities.intern_pair(1, route), OTHERS);
        }
        assert_eq!((entities.intern_pair(2, 1), entities.intern_pair(1, 7)), (OTHERS, 7));
        assert!(entities.heap_bytes() < 2 << 20, "{} bytes", entities.heap_bytes());
    }

    #[test]
    fn names_are_bounded() {
        let entities = Entities::default();
        for n in 0..MAX_NAMES {
            assert_ne!(entities.intern(Kind::Upstream, &n.to_string()), OTHERS);
        }
        assert_eq!(entities.intern(Kind::Upstream, "one more"), OTHERS);
        assert_eq!(entities.intern(Kind::Upstream, "7"), 8);
        (0..1_024).for_each(|n| assert_ne!(entities.intern(Kind::Model, &n.to_string()), OTHERS));
        assert_eq!(entities.intern(Kind::Model, "one more"), OTHERS);
        let configured = entities.intern_beyond(Kind::Model, "configured");
        assert_eq!((configured, entities.intern_beyond(Kind::Model, "configured")), (1_025, 1_025));
        assert_eq!(entities.intern(Kind::Model, "configured"), 1_025);
        assert_eq!(entities.intern(Kind::Model, "one more"), OTHERS);
    }

    #[test]
    fn configured_models_take_no_place_of_others() {
        let entities = Entities::default();
        (0..1_024).for_each(|n| assert_ne!(entities.intern_beyond(Kind::Model, &n.to_string()), OTHERS));
        (0..1_024).for_each(|n| assert_ne!(entities.intern(Kind::Model, &format!("any-{n}")), OTHERS));
        assert_eq!(entities.intern(Kind::Model, "one more"), OTHERS);
    }
}
