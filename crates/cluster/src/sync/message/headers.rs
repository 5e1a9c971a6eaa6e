//! The headers of messages. A field that is unknown is ignored; a field that another release may leave out has a default.
use super::MessageError;
use crate::sync::Refusal;
use crate::sync::identity::{Digest, Identity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_model::Uuid;

/// What a data plane says of itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Hello {
    /// The newest version of the protocol that it speaks.
    pub protocol: u32,
    /// Its version.
    pub version: String,
    /// Its plugins.
    #[serde(default)]
    pub plugins: Vec<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What it can do beyond the protocol's version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// The longest message that it reads.
    pub max_payload: u64,
    /// How many chunks it has room for.
    pub credit: u32,
    /// What it serves.
    pub identity: Identity,
}

/// What a control plane says of itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the protocol that both speak.
    pub protocol: u32,
    /// Its version.
    pub version: String,
    /// What it can do beyond the protocol's version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// The longest message that it reads.
    pub max_payload: u64,
    /// What it serves. A data plane with the same digest is current, and takes over epoch and sequence.
    pub identity: Identity,
}

/// The digests of the control plane's kinds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Compare {
    /// By the name of the kind.
    pub kinds: BTreeMap<String, Digest>,
}

/// Buckets whose entities are wanted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// The numbers of the buckets, by the name of the kind.
    pub buckets: BTreeMap<String, Vec<u16>>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct BucketKinds {
    pub(super) kinds: Vec<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Credit {
    pub(super) chunks: u32,
}

/// The entities of some buckets, each with half of its digest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Members {
    /// Bucket by bucket.
    pub buckets: Vec<BucketMembers>,
}

/// The entities of a bucket.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BucketMembers {
    /// The name of the kind.
    pub kind: String,
    /// The number of the bucket.
    pub number: u16,
    /// In the order of their ids.
    pub members: Vec<(Uuid, u64)>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct MemberLists {
    lists: Vec<(String, u16, usize)>,
}

/// An id and half a digest.
const MEMBER_LEN: usize = 24;

impl Members {
    pub(super) fn to_parts(&self) -> (MemberLists, Vec<u8>) {
        let lists = self.buckets.iter().map(|it| (it.kind.clone(), it.number, it.members.len()));
        let mut body = Vec::new();
        for (id, digest) in self.buckets.iter().flat_map(|bucket| &bucket.members) {
            body.extend_from_slice(id.as_bytes());
            body.extend_from_slice(&digest.to_be_bytes());
        }
        (MemberLists { lists: lists.collect() }, body)
    }

    pub(super) fn of_parts(header: MemberLists, body: &[u8]) -> Result<Members, MessageError> {
        let (mut rest, wrong) = (body, MessageError::Body("its lists have other lengths"));
        let mut buckets = Vec::with_capacity(header.lists.len());
        for (kind, number, count) in header.lists {
            let length = count.checked_mul(MEMBER_LEN).ok_or_else(|| wrong.clone())?;
            let (own, others) = rest.split_at_checked(length).ok_or_else(|| wrong.clone())?;
            let members = own.as_chunks::<MEMBER_LEN>().0.iter().map(member).collect();
            buckets.push(BucketMembers { kind, number, members });
            rest = others;
        }
        if rest.is_empty() { Ok(Members { buckets }) } else { Err(wrong) }
    }
}

fn member(bytes: &[u8; MEMBER_LEN]) -> (Uuid, u64) {
    let (mut id, mut digest) = ([0; 16], [0; 8]);
    id.copy_from_slice(&bytes[..16]);
    digest.copy_from_slice(&bytes[16..]);
    (Uuid::from_bytes(id), u64::from_be_bytes(digest))
}

/// What a transfer changes, and how it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferHeader {
    /// The content after it.
    #[serde(flatten)]
    pub to: Identity,
    /// The content that it changes; none if it is everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Digest>,
    /// How many chunks it has, the first one included.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub chunks: u32,
    /// Whether its records are compressed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deflate: bool,
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

/// A data plane serves this content.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Applied {
    /// The content.
    pub identity: Identity,
    /// Why its cache does not have it, if it does not: a start without a control plane would serve older content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_error: Option<String>,
}

/// A data plane does not serve this content.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Refused {
    /// The content.
    pub identity: Identity,
    /// Why.
    pub errors: Vec<Refusal>,
}

/// The answer to a frame of analytics.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AnalyticsTaken {
    /// Why the control plane does not take it. Nothing of it is counted then, and the names of the connection are forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The control plane may take it later, so the data plane keeps it and sends it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub later: bool,
}

/// Why a side ends the connection, and what to do then.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Goodbye {
    /// Why.
    pub reason: String,
    /// Seconds before the data plane may come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The control plane is draining: go to another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
    /// Milliseconds within which all its data planes go, each at a random moment.
    #[serde(default)]
    pub spread: u64,
}
