//! Notices when another node commits (`LISTEN`).
use super::StoreError;
use super::postgres::Server;
use sqlx::postgres::{PgListener, PgPoolOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The longest name that PostgreSQL lets a channel have, in bytes.
const MAX_CHANNEL_LEN: usize = 63;

/// A connection that was silent for this long is checked.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// A channel of the nodes that use this schema. If two schemas share a channel, nodes merely look more often than
/// needed.
pub(super) fn channel(prefix: &str, schema: Option<&str>) -> String {
    let mut channel = format!("{prefix}_{}", schema.unwrap_or_default());
    channel.truncate(channel.floor_char_boundary(MAX_CHANNEL_LEN));
    channel
}

/// Notifies of what is said on channels, until it is aborted. Notifications are lost while the connection is down, so it
/// also notifies each time it begins to listen.
pub(super) async fn listen(server: Arc<Server>, channels: Vec<(String, Arc<Notify>)>) {
    let mut failures = 0;
    loop {
        match connect(&server, &channels).await {
            Ok(mut listener) => {
                if failures > 0 {
                    tracing::info!("{}: listening again", server.place);
                }
                failures = 0;
                channels.iter().for_each(|(_, heard)| heard.notify_one());
                until_lost(&mut listener, &server, &channels).await;
                tracing::warn!("{}: the connection is lost; reconnecting", server.place);
            }
            Err(error) if failures == 0 => tracing::warn!("{error}"),
            Err(_) => {}
        }
        failures += 1;
        sleep(wait(failures, fastrand::f64())).await;
    }
}

async fn connect(server: &Server, channels: &[(String, Arc<Notify>)]) -> Result<PgListener, StoreError> {
    let failed = |error| server.failure(error);
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(server.timeout);
    let pool = pool.connect_lazy_with(server.options().await?);
    let mut listener = PgListener::connect_with(&pool).await.map_err(failed)?;
    listener.eager_reconnect(false);
    // Fails on a standby.
    listener.listen_all(channels.iter().map(|(channel, _)| channel.as_str())).await.map_err(failed)?;
    Ok(listener)
}

async fn until_lost(listener: &mut PgListener, server: &Server, channels: &[(String, Arc<Notify>)]) {
    loop {
        match timeout(IDLE_CHECK_INTERVAL, listener.try_recv()).await {
            Ok(Ok(Some(said))) => {
                let heard = channels.iter().filter(|(channel, _)| channel == said.channel());
                heard.for_each(|(_, heard)| heard.notify_one());
            }
            Ok(Ok(None) | Err(_)) => return,
            // If the network drops packets, nothing reports that the connection is gone.
            Err(_) if server.is_usable(&mut *listener).await => {}
            Err(_) => return,
        }
    }
}

/// The backoff before the next attempt; `chance`, from 0 to 1, keeps nodes from reconnecting all at once.
fn wait(failures: u32, chance: f64) -> Duration {
    let doubled = MIN_BACKOFF * 2_u32.saturating_pow(failures.min(16));
    doubled.min(MAX_BACKOFF).mul_f64(0.5 + chance / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        assert_eq!(wait(1, 1.0), MIN_BACKOFF * 2);
        assert_eq!(wait(2, 0.0), MIN_BACKOFF * 2);
        assert_eq!(wait(u32::MAX, 1.0), MAX_BACKOFF);
        assert_eq!(wait(u32::MAX, 0.0), MAX_BACKOFF / 2);
    }

    #[test]
    fn names_of_channels_are_never_too_long() {
        assert_eq!(channel("weir", Some("public")), "weir_public");
        let long = channel("weir", Some(&"ü".repeat(40)));
        assert!(long.len() <= MAX_CHANNEL_LEN && long.starts_with("weir_ü"), "{long}");
    }
}
