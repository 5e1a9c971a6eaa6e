//! One scenario before one gateway.
use super::FaultError;
use super::act::Act;
use super::client::{Client, Clients, Ending, Record};
use super::exchange::FIRST_PROBE;
use super::excuses::Excuses;
use super::gateway::Gateway;
use super::outcome::{Outcome, Writes};
use super::scenario::{AllowedLosses, During, Scenario, Step, When};
use super::world::World;
use super::writes::Writer;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// How often the number of finished requests is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// How many requests in a row must be right before a gateway has recovered.
const RECOVERED: usize = 20;
/// By how much a gateway's Date may differ from the clock that it was given: it is made once a second.
const DATE_TOLERANCE_SECS: u64 = 5;
/// How long a gateway may go on with the time from before its clock was moved.
const CLOCK_MOVES_WITHIN: Duration = Duration::from_secs(10);

/// How scenarios are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `weirlab`, which upstream servers run.
    pub weirlab: PathBuf,
    /// How long a client waits for the end of a request before it is counted as hung.
    pub patience: Duration,
    /// What happens to the gateway beside the scenario's own faults.
    pub during: Option<During>,
}

/// Runs it in a folder of its own.
///
/// # Errors
/// When the scenario could not be run; what went wrong for requests is in the outcome.
pub fn run(
    scenario: &Scenario,
    gateway: &Gateway,
    options: &Options,
    folder: &Path,
) -> Result<Outcome, FaultError> {
    let mut world = World::start(scenario, gateway, options, folder)?;
    let steps = scenario.steps_during(options.during);
    let under_load = load(&mut world, scenario, &steps, options).map_err(|error| with_log(error, &world))?;
    let UnderLoad { records, began, writer } = under_load;
    let inactive = world.inactive(&steps);
    let probe = Client::new(world.address()?, FIRST_PROBE + 1, scenario.load.clone(), options.patience);
    let after = look_back(&mut world, probe, writer, options.patience);
    let Aftermath { recovered, counted, writes } = after.map_err(|error| with_log(error, &world))?;
    let journal = world.end();
    let lost = if options.during == Some(During::Kill) { AllowedLosses::Any } else { scenario.lost };
    let excuses = Excuses::of(lost, &steps, began);
    let outcome = Outcome::of((&scenario.name, gateway.name()), &records, &journal, &excuses, recovered);
    Ok(Outcome { writes, counted, inactive, ..outcome })
}

/// What came of the requests while steps were made.
struct UnderLoad {
    records: Vec<Record>,
    /// When the first step began, if there was one.
    began: Option<Instant>,
    writer: Option<Writer>,
}

/// Makes the steps under a load.
fn load(
    world: &mut World,
    scenario: &Scenario,
    steps: &[Step],
    options: &Options,
) -> Result<UnderLoad, FaultError> {
    let address = world.address()?;
    // A gateway that does not work before anything is broken says nothing about the fault.
    let mut first = Client::new(address, FIRST_PROBE, scenario.load.clone(), options.patience);
    if !settle(&mut first, options.patience) {
        return Err(FaultError::lost("the gateway, before anything was broken,"));
    }
    world.begin();
    let writer = world.writer(scenario, options);
    let clients = Clients::start(address, &scenario.load, options.patience);
    let began = make(steps, world, &clients, &mut first, options.patience);
    writer.iter().for_each(Writer::steps_are_over);
    let records = clients.join();
    Ok(UnderLoad { began: began?, records: records?, writer })
}

/// Makes the steps. When the first of them began, if there is one.
fn make(
    steps: &[Step],
    world: &mut World,
    clients: &Clients,
    first: &mut Client,
    patience: Duration,
) -> Result<Option<Instant>, FaultError> {
    let mut began = None;
    for step in steps {
        wait(step.when, clients, patience)?;
        began.get_or_insert_with(Instant::now);
        world.act(&step.act)?;
        if let Act::Clock(seconds) = step.act {
            sees_clock(first, seconds, patience)?;
        }
    }
    Ok(began)
}

/// What a gateway does once the fault is over.
struct Aftermath {
    recovered: bool,
    counted: Option<bool>,
    writes: Option<Writes>,
}

fn look_back(
    world: &mut World,
    mut probe: Client,
    writer: Option<Writer>,
    patience: Duration,
) -> Result<Aftermath, FaultError> {
    world.forget_counts()?;
    let recovered = settle(&mut probe, patience);
    let counted = is_counted(world, &mut probe, patience);
    let written = writer.map(Writer::stop).transpose()?;
    if written.is_some() {
        // It might know from its memory what it has not kept.
        world.restart()?;
    }
    let writes = written.map(|written| written.look()).transpose()?;
    Ok(Aftermath { recovered, counted, writes })
}

/// Sends requests until one is counted in the server of counters; whether that came to be, if there is such a server.
fn is_counted(world: &World, probe: &mut Client, patience: Duration) -> Option<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let is_counted = world.has_counts()?;
        if is_counted || Instant::now() > deadline {
            return Some(is_counted);
        }
        // Only whether it is counted matters here.
        let _ = probe.send();
    }
}

/// Sends requests until some in a row are right; whether that came to be.
fn settle(client: &mut Client, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    let mut right = 0;
    while right < RECOVERED {
        right = if client.send().ending == Ending::Right { right + 1 } else { 0 };
        if Instant::now() > deadline {
            return false;
        }
    }
    true
}

/// Waits until the gateway's responses have the time that it was given. Without that, a run shows nothing about the clock.
fn sees_clock(probe: &mut Client, seconds: i64, patience: Duration) -> Result<(), FaultError> {
    let (start, mut right) = (Instant::now(), 0);
    loop {
        let is_right = probe.send().ending == Ending::Right;
        right += usize::from(is_right);
        let away =
            probe.date.filter(|_| is_right).map(|date| (date - OffsetDateTime::now_utc()).whole_seconds());
        if away.is_some_and(|away| away.abs_diff(seconds) <= DATE_TOLERANCE_SECS) {
            return Ok(());
        }
        if right >= RECOVERED && start.elapsed() > CLOCK_MOVES_WITHIN {
            let seen = match away {
                Some(away) => format!(
                    "a step to {seconds} s was made, and its Date is {away} s away from the right time"
                ),
                None => "its responses have no Date by which that could be seen".to_owned(),
            };
            return Err(FaultError::Unable(format!("the clock of this target cannot be moved: {seen}")));
        }
        if start.elapsed() > patience + CLOCK_MOVES_WITHIN {
            return Err(FaultError::lost("the gateway, after its clock was moved,"));
        }
    }
}

fn wait(when: When, clients: &Clients, patience: Duration) -> Result<(), FaultError> {
    match when {
        When::After(time) => thread::sleep(time),
        When::Requests(count) => {
            let mut deadline = Instant::now() + patience * 2;
            let mut finished = clients.finished();
            while finished < count {
                thread::sleep(LOOK);
                if clients.finished() > finished {
                    finished = clients.finished();
                    deadline = Instant::now() + patience * 2;
                } else if Instant::now() > deadline {
                    return Err(FaultError::Lost(format!("no request has ended since number {finished}")));
                }
            }
        }
    }
    Ok(())
}

fn with_log(error: FaultError, world: &World) -> FaultError {
    FaultError::Lost(format!("{error}{}", crate::driver::last_lines(&world.log())))
}
