//! What a node opens for APISIX's clients before it serves traffic.
use super::on_proxy::OnProxy;
use super::{Api, router};
use crate::control::Control;
use crate::listener::bind;
use crate::settings::Settings;
use crate::settings::{AdminKey, apisix_key_file};
use crate::start_error::StartError;
use axum::Router;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use weir_proxy::listen::{Bound, SocketTable};
use weir_proxy::{Address, InternalEndpoints};

/// The listeners of APISIX's Admin API and the key to it.
pub(crate) struct ApisixListeners {
    key: AdminKey,
    admin: Vec<Bound>,
    on_proxy: Arc<OnProxy>,
    /// How many of the proxy's listeners, the last ones, are APISIX's.
    proxy_listeners: usize,
}

impl ApisixListeners {
    /// Opens the listeners of the settings; none without `apisix_admin`.
    pub(crate) fn open(
        settings: &Settings,
        prefix: &Path,
        sockets: &SocketTable,
    ) -> Result<Option<ApisixListeners>, StartError> {
        if !settings.apisix_admin {
            return Ok(None);
        }
        let generated = || AdminKey::generated(prefix, &mut io::stderr());
        let key = settings.apisix_admin_key.clone().map_or_else(generated, Ok);
        let key = key.map_err(|error| StartError::Setting {
            name: "apisix_admin_key",
            value: apisix_key_file(prefix).display().to_string(),
            error,
        })?;
        let admin = bind("apisix_admin_listen", &settings.apisix_admin_listen, sockets)?;
        let on_proxy = OnProxy::new(settings.apisix_admin_on_proxy);
        let proxy_listeners = settings.apisix_proxy_listen.0.len();
        Ok(Some(ApisixListeners { key, admin, on_proxy, proxy_listeners }))
    }

    /// The endpoints that the proxy serves itself.
    pub(crate) fn own(&self) -> InternalEndpoints {
        InternalEndpoints(Some(self.on_proxy.clone()))
    }

    /// Where the Admin API listens.
    pub(crate) fn addresses(&self) -> io::Result<Vec<Address>> {
        self.admin.iter().map(Bound::address).collect()
    }

    /// The listeners and their router; from now on the proxy serves the API too.
    pub(crate) fn serve(self, control: &Arc<Control>, runtime: &Handle) -> (Vec<Bound>, Router) {
        let api = Arc::new(Api::new(control.clone(), self.key));
        let own = control.http_listeners().rev().take(self.proxy_listeners);
        let ports = own.filter_map(|listening| listening.address.ip().map(|address| address.port()));
        self.on_proxy.connect(api.clone(), ports.collect(), runtime.clone());
        (self.admin, router(api))
    }
}
