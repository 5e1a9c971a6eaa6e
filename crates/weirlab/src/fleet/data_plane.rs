//! A real data plane: how long it takes to get everything and to start without its control plane, and its memory.
use super::configuration::Content;
use super::control_plane::ControlPlane;
use super::node::{Installation, free_port};
use super::{FleetError, MAX_WAIT, Plan};
use crate::observe::ProcessTree;
use crate::result::Usage;
use serde::Serialize;
use std::thread;
use std::time::{Duration, Instant};
use ureq::Agent;

/// How long memory is given to settle after everything has arrived.
const SETTLING_TIME: Duration = Duration::from_secs(3);

/// Between two questions whether something is the case yet.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How long one answer may take.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// What was measured of a real data plane.
#[derive(Debug, Clone, Serialize)]
pub struct RealDataPlane {
    /// How many consumers there were, each with a key.
    pub consumers: u32,
    /// From the start of the process, which has nothing, until it serves everything.
    pub full_sync_s: f64,
    /// The most memory that it took for that.
    pub peak_kib: u64,
    /// Its memory afterwards.
    pub steady_kib: u64,
    /// From its next start, without a control plane, until it answers a request.
    pub first_answer_s: f64,
    /// The memory of the control plane.
    pub control_plane_kib: u64,
}

/// Measures one that gets the configuration of the plan.
pub(super) fn measure(plan: &Plan) -> Result<RealDataPlane, FleetError> {
    let Plan { weir, routes, consumers, .. } = plan;
    let content = Content::All { routes: *routes, consumers: *consumers };
    let mut control_plane = ControlPlane::start(weir, content, false)?;
    let installation = Installation::new(weir, control_plane.folder(), "data-plane");
    let [proxy, status] = [free_port()?, free_port()?];
    let settings = [
        ("role", "data_plane".to_owned()),
        ("database", "off".to_owned()),
        ("cluster_control_plane", control_plane.cluster().to_string()),
        ("proxy_listen", format!("127.0.0.1:{proxy}")),
        ("status_listen", format!("127.0.0.1:{status}")),
    ];
    let began = Instant::now();
    let node = installation.start(&settings)?;
    let full_sync = answered(&format!("http://127.0.0.1:{status}/status/ready"), began)?;
    thread::sleep(SETTLING_TIME);
    let (usage, of_control_plane) = (memory(node.pid()), memory(control_plane.pid()));
    drop(node);
    control_plane.kill();
    let began = Instant::now();
    let _node = installation.start(&settings)?;
    let first_answer = answered(&format!("http://127.0.0.1:{proxy}/path-0"), began)?;
    Ok(RealDataPlane {
        consumers: *consumers,
        full_sync_s: full_sync.as_secs_f64(),
        peak_kib: usage.rss_peak_kib,
        steady_kib: usage.rss_kib,
        first_answer_s: first_answer.as_secs_f64(),
        control_plane_kib: of_control_plane.rss_kib,
    })
}

fn memory(pid: u32) -> Usage {
    ProcessTree::new(pid).sample().since(&Default::default())
}

/// How long it takes from a moment until a URL is answered with 200.
fn answered(url: &str, since: Instant) -> Result<Duration, FleetError> {
    let config = Agent::config_builder().http_status_as_error(true).timeout_global(Some(POLL_TIMEOUT));
    let agent = Agent::new_with_config(config.build());
    loop {
        match agent.get(url).call() {
            Ok(_) => return Ok(since.elapsed()),
            Err(error) if since.elapsed() > MAX_WAIT => {
                return Err(FleetError::Node(format!("a data plane does not answer {url}: {error}")));
            }
            Err(_) => thread::sleep(POLL_INTERVAL),
        }
    }
}
