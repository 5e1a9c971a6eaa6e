//! The third level of the index: selects among routes that share host and path, by method, then by the header
//! that most of them require.
use super::Search;
use super::entry::{Entry, lower_case};
use super::keys::Keys;
use super::summary::Summary;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};

/// So many candidates are checked one by one.
const FEW: usize = 8;

type Map<K, V> = HashMap<K, V, RandomState>;

/// So many ranks are stored in place.
const IN_PLACE: usize = 5;

/// Candidates, best first wherever they are listed.
#[derive(Debug)]
pub(super) enum Candidates {
    /// One of which the summary says all.
    Plain(u32, Summary),
    /// So many of these.
    Few(u8, [u32; IN_PLACE]),
    Many(Box<Many>),
}

/// More candidates than are stored in place.
#[derive(Debug)]
pub(super) enum Many {
    List(Box<[u32]>),
    ByMethod {
        methods: Map<Box<str>, Candidates>,
        any: Candidates,
    },
    /// By the exact values of a header, in lower case.
    ByHeader {
        name: String,
        values: Map<Box<[u8]>, Vec<u32>>,
        others: Vec<u32>,
    },
}

impl Default for Candidates {
    fn default() -> Candidates {
        Candidates::Few(0, [0; IN_PLACE])
    }
}

impl Candidates {
    /// Indexes ranks given in ascending order.
    pub(super) fn build(ranks: Vec<u32>, keys: &[Keys<'_>], entries: &[Entry]) -> Candidates {
        if let [rank] = *ranks
            && let Some(entry) = entries.get(rank as usize).filter(|entry| entry.is_plain())
        {
            return Candidates::Plain(rank, entry.summary);
        }
        if ranks.len() <= FEW {
            return Candidates::list(ranks);
        }
        let (mut methods, mut any) = (Map::<Box<str>, Vec<u32>>::default(), Vec::new());
        for rank in ranks {
            match keys[rank as usize].methods.as_slice() {
                [] => any.push(rank),
                names => names.iter().for_each(|name| methods.entry((**name).into()).or_default().push(rank)),
            }
        }
        let any = Candidates::by_header(any, keys);
        if methods.is_empty() {
            return any;
        }
        let methods = methods.into_iter().map(|(name, ranks)| (name, Candidates::by_header(ranks, keys)));
        Candidates::Many(Box::new(Many::ByMethod { methods: methods.collect(), any }))
    }

    fn list(ranks: Vec<u32>) -> Candidates {
        let mut room = [0; IN_PLACE];
        match room.get_mut(..ranks.len()) {
            Some(start) => {
                start.copy_from_slice(&ranks);
                Candidates::Few(ranks.len() as u8, room)
            }
            None => Candidates::Many(Box::new(Many::List(ranks.into()))),
        }
    }

    fn by_header(ranks: Vec<u32>, keys: &[Keys<'_>]) -> Candidates {
        let Some(name) = most_common_header(&ranks, keys) else { return Candidates::list(ranks) };
        let (mut values, mut others) = (Map::<Box<[u8]>, Vec<u32>>::default(), Vec::new());
        for rank in ranks {
            match keys[rank as usize].headers.iter().find(|(other, _)| *other == name) {
                None => others.push(rank),
                Some((_, wanted)) => wanted.iter().for_each(|value| {
                    values.entry(value.to_ascii_lowercase().into_bytes().into()).or_default().push(rank);
                }),
            }
        }
        Candidates::Many(Box::new(Many::ByHeader { name, values, others }))
    }

    /// Offers a search the candidates that its request leaves.
    pub(super) fn offer(&self, search: &mut Search<'_>) {
        match self {
            Candidates::Plain(rank, summary) => search.offer_plain(*rank, *summary),
            Candidates::Few(count, ranks) => search.offer(&ranks[..usize::from(*count)]),
            Candidates::Many(many) => many.offer(search),
        }
    }
}

impl Many {
    fn offer(&self, search: &mut Search<'_>) {
        match self {
            Many::List(ranks) => search.offer(ranks),
            Many::ByMethod { methods, any } => {
                if let Some(candidates) = methods.get(search.request.query.method) {
                    candidates.offer(search);
                }
                any.offer(search);
            }
            Many::ByHeader { name, values, others } => {
                (search.request.query.header)(name, &mut |value| {
                    lower_case(value, |value| values.get(value))
                        .into_iter()
                        .for_each(|ranks| search.offer(ranks));
                    false
                });
                search.offer(others);
            }
        }
    }
}

/// The header that the most of these ask for by exact values, if that is worth an index.
fn most_common_header(ranks: &[u32], keys: &[Keys<'_>]) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in ranks.iter().flat_map(|&rank| &keys[rank as usize].headers) {
        *counts.entry(name).or_default() += 1;
    }
    let (name, count) = counts.into_iter().max_by_key(|&(_, count)| count)?;
    (count > FEW).then(|| name.to_owned())
}
