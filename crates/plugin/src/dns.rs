//! Names to addresses, as the node finds them.

use std::sync::Arc;
use weir_net::dialer::NodeResolver;
use weir_net::resolve::{Addresses, ResolveError};

/// Looks names up as the node does for upstreams: in its hosts file, its cache and the DNS, by its `dns_*` settings.
#[derive(Clone)]
pub struct DnsResolver(Arc<NodeResolver>);

impl DnsResolver {
    pub(crate) fn new(resolver: Arc<NodeResolver>) -> Self {
        Self(resolver)
    }

    /// The addresses of a host name or of the text of an address, at least one. Those of an SRV record, which `dns_order`
    /// decides on, have a port and a weight.
    pub async fn resolve(&self, host: &str) -> Result<Arc<Addresses>, ResolveError> {
        self.0.resolve(host).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_net::resolve::{Resolver, ResolverOptions};

    #[tokio::test]
    async fn names_are_those_of_the_node() {
        let hosts = std::env::temp_dir().join(format!("weir-plugin-hosts-{}", std::process::id()));
        std::fs::write(&hosts, "192.0.2.7 gateway-peer.test\n").unwrap();
        let options = ResolverOptions { hosts_file: Some(hosts.clone()), ..ResolverOptions::default() };
        let node = Arc::<NodeResolver>::default();
        let resolver = DnsResolver::new(node.clone());
        assert_eq!(resolver.resolve("::1").await.unwrap().entries.len(), 1);
        assert!(resolver.resolve("gateway-peer.test").await.is_err());
        node.provide(&Arc::new(Resolver::new(options).unwrap()));
        std::fs::remove_file(hosts).unwrap();
        let found = resolver.resolve("gateway-peer.test").await.unwrap();
        assert_eq!(found.sockets(80, 0).next(), Some(([192, 0, 2, 7], 80).into()));
    }
}
