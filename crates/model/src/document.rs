//! The whole configuration as one value.
use crate::entity::*;
use std::sync::Arc;

/// Every entity, flat: parents are named by id. Built by the declarative reader, checked before use. A clone shares the
/// entities.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Document {
    pub services: Vec<Arc<Service>>,
    pub routes: Vec<Arc<Route>>,
    pub consumers: Vec<Arc<Consumer>>,
    pub consumer_groups: Vec<Arc<ConsumerGroup>>,
    pub consumer_group_consumers: Vec<Arc<ConsumerGroupConsumer>>,
    pub keyauth_credentials: Vec<Arc<KeyAuthCredential>>,
    pub basicauth_credentials: Vec<Arc<BasicAuthCredential>>,
    pub hmacauth_credentials: Vec<Arc<HmacAuthCredential>>,
    pub jwt_secrets: Vec<Arc<JwtSecret>>,
    pub acls: Vec<Arc<Acl>>,
    pub plugins: Vec<Arc<Plugin>>,
    pub upstreams: Vec<Arc<Upstream>>,
    pub targets: Vec<Arc<Target>>,
    pub certificates: Vec<Arc<Certificate>>,
    pub snis: Vec<Arc<Sni>>,
    pub ca_certificates: Vec<Arc<CaCertificate>>,
    pub apisix_objects: Vec<Arc<ApisixObject>>,
}
