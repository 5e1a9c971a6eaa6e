//! The agent: `weirlab agent` on another machine, at the end of an ssh channel. It does there what a session asks, by the
//! same code that a session on one machine runs. Requests and replies are lines of JSON on its standard input and output.
//!
//! When its input ends, or is silent for too long, the session is gone: the agent ends what it has started, puts back
//! what it has changed, and ends.
mod perform;
pub(super) mod protocol;
mod state;

use super::site::working_folder;
use super::{Local, settings};
use crate::driver::Driver;
use crate::driver::process::Process;
use crate::observe;
use perform::Agent;
use protocol::{Body, Call, Hello, Message, Numbered, PROTOCOL};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use std::io::{self, BufRead, Write};
use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// A session sends something every few seconds; one that has not for so long is cut off, or suspended.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The address that targets, upstreams and the front listen on
    #[arg(long)]
    address: IpAddr,
}

/// Serves a session until it is gone.
///
/// # Errors
/// When the working folder cannot be made, or what was changed cannot be put back.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let system = |error: io::Error| format!("the agent cannot be set up: {error}");
    raise_open_files();
    let (mut folder, _guard) = working_folder(&Process).map_err(system)?;
    let local = Local::at(args.address, folder.path()).map_err(system)?;
    let agent = Agent::new(local, folder.path().to_owned());
    send(&Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL,
        cores: observe::allowed_cores(),
        folder: folder.path().to_owned(),
        other_session_running: folder.other_session_running,
    });
    serve(&agent, &lines(), folder.path());
    drop(agent);
    settings::restore(folder.path()).map_err(|error| {
        // It names what is yet to be put back.
        folder.leave();
        system(error)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Answers requests, each on a thread of its own; when there are no more to come, waits for those in flight.
fn serve(agent: &Agent, lines: &Receiver<String>, folder: &Path) {
    let in_flight = AtomicUsize::new(0);
    let in_flight = &in_flight;
    thread::scope(|scope| {
        while let Ok(line) = lines.recv_timeout(SILENCE_TIMEOUT) {
            let Call { id, request } = match read(&line) {
                Ok(call) => call,
                Err(refusal) => {
                    refusal.iter().for_each(send);
                    continue;
                }
            };
            in_flight.fetch_add(1, Ordering::Relaxed);
            scope.spawn(move || {
                let body = body_of(|| agent.perform(id, request));
                send(&Message { id, body });
                in_flight.fetch_sub(1, Ordering::Relaxed);
            });
        }
        agent.stop_loads();
        // What is being started now ends too, and with it the request that waits for it.
        while in_flight.load(Ordering::Relaxed) > 0 {
            let _ = Process.end_below(folder);
            thread::sleep(POLL_INTERVAL);
        }
    });
}

/// The request of a line; else what is answered, unless the line has not even a number.
fn read(line: &str) -> Result<Call, Option<Message>> {
    serde_json::from_str(line).map_err(|_| {
        let Numbered { id } = serde_json::from_str(line).ok()?;
        let why = "unknown request: the agent is of another version; build both from one commit";
        Some(Message { id, body: Body::Failed(why.to_owned()) })
    })
}

/// What is answered for a request. One that panics fails, and the agent goes on: someone waits for the answer.
fn body_of(perform: impl FnOnce() -> Result<Value, String>) -> Body {
    match panic::catch_unwind(AssertUnwindSafe(perform)) {
        Ok(Ok(value)) => Body::Done(value),
        Ok(Err(why)) => Body::Failed(why),
        Err(_) => Body::Failed("the agent panicked; its last lines on standard error say where".to_owned()),
    }
}

/// Sends a line; once the session is gone no one reads it.
fn send<T: serde::Serialize>(message: &T) {
    let Ok(mut line) = serde_json::to_vec(message) else { return };
    line.push(b'\n');
    let mut out = io::stdout().lock();
    let _ = out.write_all(&line).and_then(|()| out.flush());
}

/// The lines of the standard input, until it ends.
fn lines() -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// Targets inherit the limit.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Without it there is room for fewer connections; a load that needs more says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[cfg(test)]
mod tests {
    use super::protocol::Request;
    use super::*;

    #[test]
    fn a_request_that_panics_fails() {
        let body = body_of(|| panic!("on purpose"));
        assert!(matches!(&body, Body::Failed(why) if why.contains("panicked")), "{body:?}");
        assert!(matches!(body_of(|| Ok(Value::Null)), Body::Done(Value::Null)));
    }

    #[test]
    fn a_request_of_another_version_is_answered() {
        assert!(matches!(read(r#"{"id":7,"request":"Time"}"#), Ok(Call { id: 7, request: Request::Time })));
        let refused = read(r#"{"id":7,"request":{"Teleport":{"to":"x"}}}"#);
        let Err(Some(Message { id: 7, body: Body::Failed(why) })) = refused else { panic!("no answer") };
        assert!(why.contains("another version"), "{why}");
        assert!(matches!(read("nonsense"), Err(None)));
    }
}
