//! Periodic actions while a load runs: scrapes, writes to an Admin API, reloads, signals.
use crate::driver::Running;
use crate::host::{ClientRequest, Host};
use crate::load::Protocol;
use crate::result::ActionSample;
use crate::scenario::{Action, ActionKind};
use crate::target::Listeners;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The target of the actions.
pub(crate) struct Subject<'a> {
    pub(crate) listeners: &'a Listeners,
    /// Where requests come from.
    pub(crate) generator: &'a dyn Host,
    /// The gateway's processes; all reload.
    pub(crate) running: &'a Mutex<Vec<Box<dyn Running>>>,
    pub(crate) tls: bool,
}

/// Fires the actions, the first half an interval after `begin`, until `done`.
pub(crate) fn fire(
    actions: &[Action],
    subject: &Subject<'_>,
    begin: Instant,
    done: &AtomicBool,
    seed: u64,
) -> Vec<ActionSample> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut due: Vec<(Instant, u64)> = actions.iter().map(|action| (begin + action.every / 2, 0)).collect();
    let mut samples = Vec::new();
    while !done.load(Ordering::Relaxed) {
        for (action, (at, times)) in actions.iter().zip(&mut due) {
            if Instant::now() < *at {
                continue;
            }
            samples.push(once(action, subject, *times, begin, &mut random));
            *times += 1;
            *at += action.every;
        }
        thread::sleep(Duration::from_millis(5));
    }
    samples
}

fn once(
    action: &Action,
    subject: &Subject<'_>,
    times: u64,
    begin: Instant,
    random: &mut fastrand::Rng,
) -> ActionSample {
    let start = Instant::now();
    let outcome = match &action.kind {
        ActionKind::Http { listener, method, path, headers, body, random: below } => {
            let drawn = random.u64(0..(*below).max(1)).to_string();
            let fill = |text: &str| text.replace("{random}", &drawn).replace("{n}", &times.to_string());
            call(subject, listener, method, &fill(path), headers, &fill(body))
        }
        ActionKind::Reload => each(subject, |running| running.reload().map_err(|error| error.to_string())),
        ActionKind::Signal(name) => {
            each(subject, |running| running.signal(name).map_err(|error| error.to_string()))
        }
    };
    let (bytes, error) = outcome.map_or_else(|error| (0, Some(error)), |bytes| (bytes, None));
    ActionSample {
        name: action.name.clone(),
        at_s: start.duration_since(begin).as_secs_f64(),
        took_ms: start.elapsed().as_secs_f64() * 1e3,
        bytes,
        error,
    }
}

fn each(
    subject: &Subject<'_>,
    mut act: impl FnMut(&mut dyn Running) -> Result<(), String>,
) -> Result<u64, String> {
    let mut running = subject.running.lock().unwrap_or_else(PoisonError::into_inner);
    running.iter_mut().try_for_each(|one| act(one.as_mut()))?;
    Ok(0)
}

fn call(
    subject: &Subject<'_>,
    listener: &str,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &str,
) -> Result<u64, String> {
    let (address, tls) = match listener {
        "admin" => (subject.listeners.admin, false),
        "status" => (subject.listeners.status, false),
        _ if subject.tls => (subject.listeners.https, true),
        _ => (subject.listeners.http, false),
    };
    let address = address.ok_or_else(|| format!("the target has no {listener} listener"))?;
    let request = ClientRequest {
        address,
        protocol: Protocol::Http1,
        tls,
        method: method.to_owned(),
        path: path.to_owned(),
        headers: headers.to_vec(),
        body: body.to_owned(),
    };
    let answer = subject.generator.send(&request).map_err(|error| error.to_string())?;
    if answer.status >= 400 {
        return Err(format!("{method} {path}: {}", answer.status));
    }
    Ok(answer.body.len() as u64)
}
