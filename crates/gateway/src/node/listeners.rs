//! The listeners of the node's own APIs: which are opened, and what each serves.
use crate::admin::kong_manager::{self, AdminPorts, Origins};
use crate::admin::{self, auth};
use crate::control::Control;
use crate::data_plane;
use crate::listener::{ClientTimeouts, ControlListener, ServedCounts, Serving, TrustedPeers};
use crate::options;
use crate::settings::{Listen, Listeners, LogTarget, Settings};
use crate::start_error::StartError;
use crate::status as status_api;
use axum::Router;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;
use weir_net::tls::{ca_certificates, default_certificate, server_config};
use weir_proxy::listen::Bound;

/// The listeners of the Admin API or of the web UI, without those that would be open to other machines without
/// authentication.
pub(crate) fn openable(name: &str, listeners: &Listeners, settings: &Settings) -> Listeners {
    let open = |listen: &&Listen| {
        let address = &listen.address;
        let asks_for_certificate = listen.ssl && settings.admin_ssl_client_ca.is_some();
        let is_guarded = asks_for_certificate || !settings.admin_auth.is_off();
        if !(listen.is_loopback() || is_guarded || settings.admin_allow_insecure) {
            tracing::error!(
                "{name} {address} stays closed: the Admin API has no authentication, and this address is \
                 reachable from other machines; listen on 127.0.0.1, set admin_auth (`weir admin token` makes a \
                 token), or set admin_allow_insecure=on"
            );
            return false;
        }
        if settings.admin_ssl_client_ca.is_some() && !listen.ssl {
            tracing::warn!("{name} {address}: admin_ssl_client_ca has no effect without TLS; add `ssl`");
        }
        if !listen.is_loopback() && !listen.ssl && !settings.admin_auth.is_off() {
            tracing::warn!("{name} {address}: tokens cross the network unencrypted; add `ssl`");
        }
        true
    };
    Listeners(listeners.0.iter().filter(open).cloned().collect())
}

/// Kong's Admin API.
pub(crate) fn admin<'l>(
    settings: &Settings,
    control: &Arc<Control>,
    listeners: impl Iterator<Item = (&'l Listen, Bound)>,
) -> Result<Vec<ControlListener>, StartError> {
    let pages = Origins::of(&settings.admin_gui_url);
    let auth = settings.admin_auth.clone();
    let mut router = auth::guarded(admin::router(control.clone()), auth, pages.clone(), control.plugins());
    router = kong_manager::with_cors(router, pages);
    let target = &settings.admin_access_log;
    if let LogTarget::Path(path) = target {
        router = admin::logged(router, path, control.plugins())
            .map_err(|error| StartError::of_log("admin_access_log", target, error))?;
    }
    router = admin::with_server_headers(router, &settings.headers);
    let api = Api {
        name: "admin_listen",
        settings,
        control,
        certificate: data_plane::files(&settings.admin_ssl_cert, &settings.admin_ssl_cert_key),
        authorities: settings.admin_ssl_client_ca.as_deref(),
        timeouts: ClientTimeouts::of_admin(settings),
        counts: control.admin_counts(),
    };
    api.serve(listeners, |_| router.clone())
}

/// The web UI, which is a client of the Admin API in this process, and what Kong Manager needs.
pub(crate) fn gui<'l>(
    settings: &Settings,
    control: &Arc<Control>,
    ports: AdminPorts,
    listeners: impl Iterator<Item = (&'l Listen, Bound)>,
) -> Result<Vec<ControlListener>, StartError> {
    let (auth, no_pages) = (settings.admin_auth.clone(), Origins::of(&[]));
    let admin = auth::guarded(admin::router(control.clone()), auth, no_pages, control.plugins());
    let is_read_only = !control.registry().is_stored();
    let api = Api {
        name: "admin_gui_listen",
        settings,
        control,
        certificate: data_plane::files(&settings.admin_gui_ssl_cert, &settings.admin_gui_ssl_cert_key),
        authorities: settings.admin_ssl_client_ca.as_deref(),
        timeouts: ClientTimeouts::of_admin(settings),
        counts: Arc::default(),
    };
    api.serve(listeners, |listen| {
        let pages = weir_ui::router(admin.clone(), weir_ui::Options { is_secure: listen.ssl, is_read_only });
        kong_manager::with_kconfig(pages, settings, ports)
    })
}

/// The status API, for monitoring.
pub(crate) fn status<'l>(
    settings: &Settings,
    control: &Arc<Control>,
    listeners: impl Iterator<Item = (&'l Listen, Bound)>,
) -> Result<Vec<ControlListener>, StartError> {
    let api = Api {
        name: "status_listen",
        settings,
        control,
        certificate: data_plane::files(&settings.status_ssl_cert, &settings.status_ssl_cert_key),
        authorities: None,
        timeouts: ClientTimeouts::of(settings),
        counts: Arc::default(),
    };
    let router = status_api::router(control.clone(), admin::upstreams());
    api.serve(listeners, |_| router.clone())
}

/// APISIX's Admin API.
pub(crate) fn apisix<'l>(
    settings: &Settings,
    control: &Control,
    listeners: impl Iterator<Item = (&'l Listen, Bound)>,
    router: &Router,
) -> Result<Vec<ControlListener>, StartError> {
    let api = Api {
        name: "apisix_admin_listen",
        settings,
        control,
        certificate: data_plane::files(&settings.admin_ssl_cert, &settings.admin_ssl_cert_key),
        authorities: settings.admin_ssl_client_ca.as_deref(),
        timeouts: ClientTimeouts::of_admin(settings),
        counts: Arc::default(),
    };
    api.serve(listeners, |_| router.clone())
}

/// One of the node's own APIs.
struct Api<'s> {
    /// The setting that they come from.
    name: &'static str,
    settings: &'s Settings,
    control: &'s Control,
    /// The files of its certificate and key, if it has its own.
    certificate: Option<(&'s Path, &'s Path)>,
    /// The authorities of the certificates that clients must present over TLS.
    authorities: Option<&'s Path>,
    timeouts: ClientTimeouts,
    counts: Arc<ServedCounts>,
}

impl Api<'_> {
    /// Serves on each listener, over TLS if the listener has `ssl`.
    fn serve<'l>(
        &self,
        listeners: impl Iterator<Item = (&'l Listen, Bound)>,
        router: impl Fn(&Listen) -> Router,
    ) -> Result<Vec<ControlListener>, StartError> {
        let trusted = Arc::new(TrustedPeers::of(self.settings));
        let mut servers = Vec::new();
        for (listen, bound) in listeners {
            let serving = Serving {
                name: self.name,
                tls: listen.ssl.then(|| self.tls(listen.http2)).transpose()?,
                requires_certificate: self.authorities.is_some(),
                proxy_protocol: listen.proxy_protocol.then(|| trusted.clone()),
                timeouts: self.timeouts,
                counts: self.counts.clone(),
                in_flight: self.control.requests_in_flight().clone(),
            };
            servers.push(ControlListener::new(serving, bound, router(listen))?);
        }
        Ok(servers)
    }

    fn tls(&self, http2: bool) -> Result<Arc<ServerConfig>, StartError> {
        let authorities = self.authorities.map(|path| {
            let pem = fs::read_to_string(path).map_err(|error| StartError::Setting {
                name: "admin_ssl_client_ca",
                value: path.display().to_string(),
                error,
            })?;
            ca_certificates(&pem).map_err(StartError::Tls)
        });
        let certificate = match self.certificate {
            Some(files) => default_certificate(Some(files)).map_err(StartError::Tls)?,
            None => self.control.default_certificate(),
        };
        let options = options::tls(self.settings);
        server_config(&options, certificate, authorities.transpose()?, http2).map_err(StartError::Tls)
    }
}
