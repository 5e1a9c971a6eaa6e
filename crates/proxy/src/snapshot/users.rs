//! Consumers and their credentials: what a request's user may be, and what plugins may look up while they are built.

use super::groups::Groups;
use super::last::same;
use std::collections::HashMap;
use std::sync::Arc;
use weir_model::entity::{self, Acl, BasicAuthCredential, HmacAuthCredential, JwtSecret, KeyAuthCredential};
use weir_model::{Document, Uuid};
use weir_plugin::Consumer;
use weir_plugin::ConsumerIndex;

/// The consumers of a document, and what they were compiled from.
pub(super) struct Users {
    pub(super) consumers: Arc<[Consumer]>,
    pub(super) index: HashMap<Uuid, ConsumerIndex>,
    pub(super) groups: Groups,
    credentials: Credentials,
}

/// Every credential of a document.
struct Credentials {
    keyauth: Vec<Arc<KeyAuthCredential>>,
    basicauth: Vec<Arc<BasicAuthCredential>>,
    hmacauth: Vec<Arc<HmacAuthCredential>>,
    jwt_secrets: Vec<Arc<JwtSecret>>,
    acls: Vec<Arc<Acl>>,
}

impl Users {
    pub(super) fn new(document: &Document) -> Users {
        let mut acl_groups: HashMap<Uuid, Vec<Box<str>>> = HashMap::new();
        for acl in &document.acls {
            acl_groups.entry(acl.consumer).or_default().push((&*acl.group).into());
        }
        let groups = Groups::of(document);
        let mut members = groups.by_consumer();
        let mut consumer = |it: &Arc<entity::Consumer>| {
            let acl_groups = acl_groups.remove(&it.id).unwrap_or_default();
            let groups = members.remove(&it.id).unwrap_or_default();
            Consumer::new(it.clone(), acl_groups.into(), groups.into())
        };
        let index = document.consumers.iter().zip(0u32..).map(|(c, i)| (c.id, ConsumerIndex(i)));
        Users {
            consumers: document.consumers.iter().map(&mut consumer).collect(),
            index: index.collect(),
            groups,
            credentials: Credentials::of(document),
        }
    }

    /// Whether they are those of this document.
    pub(super) fn are_of(&self, document: &Document) -> bool {
        let consumers = self.consumers.iter().map(|consumer| &consumer.entity);
        self.consumers.len() == document.consumers.len()
            && consumers.zip(&document.consumers).all(|(a, b)| Arc::ptr_eq(a, b))
            && self.groups.are_of(document)
            && self.credentials.are_of(document)
    }
}

impl Credentials {
    fn of(document: &Document) -> Credentials {
        Credentials {
            keyauth: document.keyauth_credentials.clone(),
            basicauth: document.basicauth_credentials.clone(),
            hmacauth: document.hmacauth_credentials.clone(),
            jwt_secrets: document.jwt_secrets.clone(),
            acls: document.acls.clone(),
        }
    }

    fn are_of(&self, document: &Document) -> bool {
        same(&self.keyauth, &document.keyauth_credentials)
            && same(&self.basicauth, &document.basicauth_credentials)
            && same(&self.hmacauth, &document.hmacauth_credentials)
            && same(&self.jwt_secrets, &document.jwt_secrets)
            && same(&self.acls, &document.acls)
    }
}
