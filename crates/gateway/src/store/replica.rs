//! A read-only replica of PostgreSQL. Whenever a node reads all entities, it reads them from there. The replica may lag
//! behind: what it lacks is read from the server itself, before anything of it is used.
use super::postgres::{LOAD_TIMEOUT_FACTOR, Server};
use super::row::{ALL, Selected, loaded};
use super::{Loaded, StoreError};
use crate::settings::Settings;
use weir_model::PluginSchema;

/// The replica.
pub(super) struct Replica(Server);

impl Replica {
    /// The replica that the settings name, if they do.
    pub(super) fn of(settings: &Settings) -> Result<Option<Replica>, StoreError> {
        in_place_of_server(settings)
            .map(|settings| Server::of(&settings).map(|server| Replica(server.for_reads())))
            .transpose()
    }

    /// Everything that it holds.
    pub(super) async fn load(&self, plugins: &[PluginSchema]) -> Result<Loaded, StoreError> {
        let Replica(server) = self;
        let selected = server.in_time(server.timeout * LOAD_TIMEOUT_FACTOR, self.all()).await?;
        loaded(selected, plugins, &server.place)
    }

    async fn all(&self) -> Result<Vec<Selected>, StoreError> {
        let Replica(server) = self;
        let mut connection = server.connect().await?;
        server.found(&mut connection).await?.usable(&server.place)?;
        let selected = sqlx::query_as(ALL).fetch_all(&mut connection).await;
        selected.map_err(|error| server.failure(error))
    }
}

/// The settings of the replica in the place of those of the server.
fn in_place_of_server(settings: &Settings) -> Option<Settings> {
    let own = settings.clone();
    Some(Settings {
        pg_host: own.pg_ro_host?,
        pg_port: own.pg_ro_port.unwrap_or(own.pg_port),
        pg_timeout: own.pg_ro_timeout.unwrap_or(own.pg_timeout),
        pg_user: own.pg_ro_user.unwrap_or(own.pg_user),
        pg_password: own.pg_ro_password.or(own.pg_password),
        pg_database: own.pg_ro_database.unwrap_or(own.pg_database),
        pg_schema: own.pg_ro_schema.or(own.pg_schema),
        pg_ssl: own.pg_ro_ssl.unwrap_or(own.pg_ssl),
        pg_ssl_required: own.pg_ro_ssl_required.unwrap_or(own.pg_ssl_required),
        pg_ssl_verify: own.pg_ro_ssl_verify.unwrap_or(own.pg_ssl_verify),
        ..settings.clone()
    })
}
