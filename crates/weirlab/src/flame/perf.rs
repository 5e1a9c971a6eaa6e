//! Recording by `perf`.
use super::{FlameError, Profile, Stacks, draw, fold, write};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// What is counted, in the order it is tried: virtual machines often have no cycle counter.
const EVENTS: [&str; 2] = ["cycles", "cpu-clock"];

/// The fields of each sample: all but its period, so that samples are counted, which are equally far apart in time.
const FIELDS: &str = "comm,pid,tid,time,event,ip,sym,symoff,dso";

/// How the stack is unwound: by DWARF, from a copy of so many bytes of it. The futures of an asynchronous gateway make
/// frames of kilobytes; with perf's usual 8 KiB most stacks would be cut off.
const CALL_GRAPH: &str = "dwarf,32768";

/// Samples processes and draws what they did as `NAME.folded` and `NAME.svg` in `folder`.
///
/// # Errors
/// When `perf` is missing or not permitted, or there is nothing to draw.
pub fn record(
    pids: &[u32],
    duration: Duration,
    frequency: u32,
    folder: &Path,
    name: &str,
) -> Result<Profile, FlameError> {
    save(&stacks(pids, duration, frequency, folder)?, folder, name, name)
}

/// Samples processes; the recording lies in `folder` for as long as it is needed.
///
/// # Errors
/// When `perf` is missing or not permitted, or there are no samples.
pub fn stacks(pids: &[u32], duration: Duration, frequency: u32, folder: &Path) -> Result<Stacks, FlameError> {
    let data = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).join("recording.perf");
    let recorded = EVENTS.iter().find_map(|event| {
        match sample(pids, duration, frequency, event, &data).and_then(|()| script(&data)) {
            // Not every machine counts every event, and one that is only pretended to be counted yields nothing.
            Err(FlameError::Perf(_) | FlameError::NoSamples(_)) if *event != EVENTS[EVENTS.len() - 1] => None,
            outcome => Some(outcome),
        }
    });
    // It holds a copy of the stack for each sample: large, and of no use once it has been read.
    let _ = fs::remove_file(&data);
    let script = recorded.unwrap_or_else(|| Err(FlameError::NoSamples(pids.to_vec())))?;
    let event = event(&script);
    let folded = fold::fold(&script)?;
    match fold::count(&folded) {
        0 => Err(FlameError::NoSamples(pids.to_vec())),
        samples => Ok(Stacks { folded, samples, event }),
    }
}

/// Draws stacks as `NAME.folded` and `NAME.svg` in `folder`.
///
/// # Errors
/// When they cannot be drawn or written.
pub fn save(stacks: &Stacks, folder: &Path, name: &str, title: &str) -> Result<Profile, FlameError> {
    let Stacks { folded, samples, event } = stacks;
    let (text, picture) = (folder.join(format!("{name}.folded")), folder.join(format!("{name}.svg")));
    write(&text, folded.as_bytes())?;
    write(&picture, &draw::graph(folded, title, &format!("{samples} samples of {event}"))?)?;
    Ok(Profile { folded: text, graph: picture, samples: *samples, event: event.clone() })
}

fn sample(
    pids: &[u32],
    duration: Duration,
    frequency: u32,
    event: &str,
    data: &Path,
) -> Result<(), FlameError> {
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    let mut perf = Command::new("perf");
    // What clears the folder ends it too.
    perf.current_dir(data.parent().unwrap_or(Path::new("/")));
    perf.args(["record", "--event", event, "--call-graph", CALL_GRAPH]);
    perf.args(["--freq", &frequency.to_string(), "--pid", &list.join(",")]).arg("--output").arg(data);
    let seconds = format!("{:.3}", duration.as_secs_f64());
    let output = outcome(perf.args(["--", "sleep", &seconds]))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(explained(&said, pids))
}

/// What `perf` saw, in words, without inlined functions: to look each up takes minutes in a large binary.
fn script(data: &Path) -> Result<Vec<u8>, FlameError> {
    let output = outcome(
        Command::new("perf")
            .args(["script", "--no-inline", "--force", "--fields", FIELDS, "--input"])
            .arg(data),
    )?;
    match output.status.success() {
        true if output.stdout.is_empty() => Err(FlameError::NoSamples(Vec::new())),
        true => Ok(output.stdout),
        false => Err(FlameError::Perf(last_line(&String::from_utf8_lossy(&output.stderr)))),
    }
}

/// What was counted in the end: perf chooses the clock by itself where it knows that there is no counter. The first line
/// ends in the event's name and its modifiers, such as `cpu-clock:ppp:`.
fn event(script: &[u8]) -> String {
    let first: Vec<u8> = script.iter().copied().take_while(|byte| *byte != b'\n').collect();
    let line = String::from_utf8_lossy(&first).trim().to_owned();
    let name = line.rsplit(' ').next().unwrap_or_default();
    name.split(':').next().unwrap_or_default().to_owned()
}

fn outcome(command: &mut Command) -> Result<Output, FlameError> {
    command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => FlameError::PerfMissing,
        _ => FlameError::Perf(error.to_string()),
    })
}

fn explained(said: &str, pids: &[u32]) -> FlameError {
    let lower = said.to_lowercase();
    // Debian's /usr/bin/perf is a script that says so when the program itself is absent.
    if lower.contains("linux-perf") || lower.contains("linux-tools") {
        return FlameError::PerfMissing;
    }
    if ["permission", "not permitted", "perf_event_paranoid", "access to performance"]
        .iter()
        .any(|hint| lower.contains(hint))
    {
        let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        return FlameError::NotPermitted(level.trim().to_owned());
    }
    let gone = pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    if gone {
        return FlameError::NoSamples(pids.to_vec());
    }
    FlameError::Perf(last_line(said))
}

fn last_line(said: &str) -> String {
    said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it did not say why").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_is_the_one_that_was_counted() {
        assert_eq!(event(b"weir 12 1.000000: cpu-clock:ppp: \n\t1000 main+0x1 (/x)\n"), "cpu-clock");
        assert_eq!(event(b"weir worker 12/13 1.000000: cycles: \n"), "cycles");
        assert_eq!(event(b""), "");
    }

    #[test]
    fn what_perf_says_becomes_what_can_be_done() {
        let denied = "Error:\nAccess to performance monitoring and observability operations is limited.";
        assert!(explained(denied, &[1]).to_string().contains("sysctl kernel.perf_event_paranoid"));
        assert!(
            explained("E: linux-perf-6.12 is not installed.", &[1]).to_string().contains("apt-get install")
        );
        assert!(explained("something\nodd\n\n", &[std::process::id()]).to_string().contains("odd"));
    }
}
