//! Hears when another node has committed.
use super::postgres::Server;
use sqlx::postgres::{PgListener, PgPoolOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The longest name that PostgreSQL lets a channel have, in bytes.
const LONGEST_CHANNEL: usize = 63;

/// A connection that was silent for so long is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(10);

const SHORTEST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The channel of the nodes that keep their entities in this schema. One more schema on the same channel would merely
/// make them look once too often.
pub(super) fn channel(schema: Option<String>) -> String {
    let mut channel = format!("weir_{}", schema.unwrap_or_default());
    channel.truncate(channel.floor_char_boundary(LONGEST_CHANNEL));
    channel
}

/// Tells of what other nodes commit, for as long as it is left to run. What was said while nobody listened is not said
/// again, so it also tells each time it begins to listen.
pub(super) async fn listen(server: Arc<Server>, channel: String, heard: Arc<Notify>) {
    let mut failures = 0;
    loop {
        match connect(&server, &channel).await {
            Ok(mut listener) => {
                if failures > 0 {
                    tracing::info!("{}: listening again", server.place);
                }
                failures = 0;
                heard.notify_one();
                until_lost(&mut listener, &server, &heard).await;
                tracing::warn!("{}: the connection is lost: it is made again", server.place);
            }
            Err(error) if failures == 0 => tracing::warn!("{}", server.failure(error)),
            Err(_) => {}
        }
        failures += 1;
        sleep(wait(failures, fastrand::f64())).await;
    }
}

async fn connect(server: &Server, channel: &str) -> Result<PgListener, sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(server.timeout);
    let pool = pool.connect_lazy_with(server.options().clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(channel).await?;
    Ok(listener)
}

async fn until_lost(listener: &mut PgListener, server: &Server, heard: &Notify) {
    loop {
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(_))) => heard.notify_one(),
            Ok(Ok(None) | Err(_)) => return,
            // Where the network swallows packets, nobody says that the connection is gone.
            Err(_) => match timeout(server.timeout, sqlx::query("SELECT 1").execute(&mut *listener)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return,
            },
        }
    }
}

/// How long to wait before the next attempt; `chance`, from 0 to 1, keeps nodes from all coming at once.
fn wait(failures: u32, chance: f64) -> Duration {
    let doubled = SHORTEST_WAIT * 2_u32.saturating_pow(failures.min(16));
    doubled.min(LONGEST_WAIT).mul_f64(0.5 + chance / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        assert_eq!(wait(1, 1.0), SHORTEST_WAIT * 2);
        assert_eq!(wait(2, 0.0), SHORTEST_WAIT * 2);
        assert_eq!(wait(u32::MAX, 1.0), LONGEST_WAIT);
        assert_eq!(wait(u32::MAX, 0.0), LONGEST_WAIT / 2);
    }

    #[test]
    fn names_of_channels_are_never_too_long() {
        assert_eq!(channel(Some("public".to_owned())), "weir_public");
        let long = channel(Some("ü".repeat(40)));
        assert!(long.len() <= LONGEST_CHANNEL && long.starts_with("weir_ü"), "{long}");
    }
}
