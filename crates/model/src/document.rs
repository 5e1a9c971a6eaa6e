//! The whole configuration as one value.
use crate::entity::*;

/// Every entity, flat: parents are named by id. Built by the declarative reader, checked before use.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Document {
    pub services: Vec<Service>,
    pub routes: Vec<Route>,
    pub consumers: Vec<Consumer>,
    pub keyauth_credentials: Vec<KeyAuthCredential>,
    pub basicauth_credentials: Vec<BasicAuthCredential>,
    pub hmacauth_credentials: Vec<HmacAuthCredential>,
    pub jwt_secrets: Vec<JwtSecret>,
    pub acls: Vec<Acl>,
    pub plugins: Vec<Plugin>,
    pub upstreams: Vec<Upstream>,
    pub targets: Vec<Target>,
    pub certificates: Vec<Certificate>,
    pub snis: Vec<Sni>,
    pub ca_certificates: Vec<CaCertificate>,
    pub apisix_objects: Vec<ApisixObject>,
}
