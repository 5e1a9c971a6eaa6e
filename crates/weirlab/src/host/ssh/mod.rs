//! Hosts over ssh: the hosts file, one connection to each, the agent at its other end.
mod connection;
mod diagnosis;
mod file;
mod layout;
mod master;
mod programs;
mod remote;

use super::agent::protocol::{Hello, PROTOCOL, Request};
use super::site::{Elsewhere, working_folder};
use super::{Host, HostError, Hosts, Site};
use crate::driver::process::Process;
use crate::result::HostManifest;
use connection::Connection;
use file::{HostEntry, Prepare, Role};
use layout::Place;
use master::Master;
pub(super) use programs::Programs;
use remote::{Remote, Ssh};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Clocks that are further apart make signatures with dates invalid, and logs useless.
const MAX_CLOCK_OFFSET_S: f64 = 60.0;

/// A host with its agent.
struct Opened {
    connection: Arc<Connection>,
    hello: Hello,
    manifest: HostManifest,
    warnings: Vec<String>,
}

/// Connects to the hosts of a file and prepares them for `workers` workers of a target.
///
/// # Errors
/// When the file is wrong or a host cannot be used; nothing is left running then.
pub fn open(file: &Path, workers: usize) -> Result<Site, HostError> {
    let (entries, prepare) = file::read(file)?;
    let failed = |error| HostError::Unusable(format!("cannot set up the working folder: {error}"));
    let (working_folder, guard) = working_folder(&Process).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let mut opened = Vec::new();
    for (nth, entry) in entries.iter().enumerate() {
        let socket = working_folder.path().join(format!("ssh-{nth}"));
        opened.push(connect(entry, socket, &program)?);
    }
    let target = of_role(&opened, Role::Target)?;
    check_cores(target, workers)?;
    prepare_all(&mut opened, &prepare)?;
    let target = of_role(&opened, Role::Target)?;
    let (upstream, generator) = (of_role(&opened, Role::Upstream)?, of_role(&opened, Role::Generator)?);
    let host = |opened: &Opened| -> Arc<dyn Host> {
        Arc::new(Remote { connection: Arc::clone(&opened.connection) })
    };
    let places = [target, upstream, generator]
        .map(|opened| Place { host: opened.connection.host.name.clone(), cores: opened.hello.cores.clone() });
    let machine = |opened: &Opened| (opened.connection.host.name.clone(), opened.manifest.clone());
    Ok(Site {
        driver: Box::new(Ssh { connection: Arc::clone(&target.connection) }),
        hosts: Hosts { target: host(target), upstream: host(upstream), generator: host(generator) },
        folder: target.hello.folder.clone(),
        other_session_running: opened.iter().any(|opened| opened.hello.other_session_running),
        warnings: opened.iter().flat_map(|opened| opened.warnings.clone()).collect(),
        elsewhere: Some(Elsewhere {
            layout: Box::new(move |workers| layout::layout(&places[0], &places[1], &places[2], workers)),
            machines: opened.iter().map(machine).collect(),
            target: Programs::new(Arc::clone(&target.connection)),
            generator: Programs::new(Arc::clone(&generator.connection)),
        }),
        working_folder,
        _guard: guard,
    })
}

/// Connects to a host and starts its agent.
fn connect(entry: &HostEntry, socket: PathBuf, program: &Path) -> Result<Opened, HostError> {
    let master = Master::open(entry, socket)?;
    let architecture = master.output("asking for its architecture", &["uname", "-m"])?;
    if entry.weirlab.is_none() && architecture.trim() != std::env::consts::ARCH {
        let what = format!("it is of the architecture {}, and this program is not", architecture.trim());
        let fix = "build weirlab for it, and name the file as `weirlab` of the host";
        return Err(entry.unusable("weirlab", &what, fix));
    }
    let agent = master.upload(entry.weirlab.as_deref().unwrap_or(program))?;
    let (connection, hello) = Connection::open(master, entry, &agent)?;
    let (own, version, protocol) = (env!("CARGO_PKG_VERSION"), &hello.version, hello.protocol);
    if (version.as_str(), protocol) != (own, PROTOCOL) {
        let what = format!(
            "it is version {version} with protocol {protocol}, and this program is {own} with protocol {PROTOCOL}"
        );
        return Err(entry.unusable("weirlab", &what, "build both from one commit"));
    }
    check_address(entry, &connection)?;
    let (offset, trip) = connection.clock()?;
    check_clock(entry, offset)?;
    let manifest = HostManifest {
        roles: entry.roles.iter().map(|role| role.name().to_owned()).collect(),
        clock_offset_us: offset * 1e6,
        round_trip_us: trip.as_secs_f64() * 1e6,
        ..HostManifest::default()
    };
    Ok(Opened { connection: Arc::new(connection), hello, manifest, warnings: Vec::new() })
}

fn check_address(entry: &HostEntry, connection: &Connection) -> Result<(), HostError> {
    let found = connection.call::<Vec<std::net::SocketAddr>>(Request::Addresses { count: 1 });
    found.map(drop).map_err(|error| {
        let fix =
            "write the address at which the other hosts reach it; `ip address` there shows those it has";
        entry.unusable("internal_address", &error.to_string(), fix)
    })
}

fn check_clock(entry: &HostEntry, offset_s: f64) -> Result<(), HostError> {
    if offset_s.abs() <= MAX_CLOCK_OFFSET_S {
        return Ok(());
    }
    let side = if offset_s > 0.0 { "ahead" } else { "behind" };
    let what = format!("its clock is {:.0} s {side}", offset_s.abs());
    Err(entry.unusable(
        "address",
        &what,
        "synchronise it, such as by `timedatectl set-ntp true`, or set this one",
    ))
}

fn check_cores(target: &Opened, workers: usize) -> Result<(), HostError> {
    let cpus = target.hello.cores.concat().len();
    if cpus >= workers {
        return Ok(());
    }
    let what = format!("it has {cpus} CPUs for {workers} workers");
    Err(target.connection.host.unusable("roles", &what, "give the role to a larger host, or lower --workers"))
}

fn of_role(opened: &[Opened], role: Role) -> Result<&Opened, HostError> {
    let missing = || HostError::Unusable(format!("no host has the role {}", role.name()));
    opened.iter().find(|opened| opened.connection.host.has(role)).ok_or_else(missing)
}

/// Changes settings on all hosts, then waits until each is quiet, and notes what they are then.
fn prepare_all(opened: &mut [Opened], prepare: &Prepare) -> Result<(), HostError> {
    if prepare.settings {
        for opened in &mut *opened {
            opened.manifest.prepared = opened.connection.call(Request::Prepare)?;
        }
    }
    for opened in opened {
        await_quiet(opened, prepare)?;
        let known: HostManifest = opened.connection.call(Request::Describe)?;
        let manifest = &mut opened.manifest;
        (manifest.kernel, manifest.cpu, manifest.machine) = (known.kernel, known.cpu, known.machine);
        (manifest.cpus, manifest.memory_mib) = (known.cpus, known.memory_mib);
    }
    Ok(())
}

fn await_quiet(opened: &mut Opened, prepare: &Prepare) -> Result<(), HostError> {
    let (below, at_most): (f64, Duration) = (prepare.load_average, prepare.wait.0);
    let average: f64 = opened.connection.call(Request::AwaitQuiet { below, at_most })?;
    opened.manifest.load_average = average;
    if average >= below {
        opened.warnings.push(format!(
            "host {} is busy: its load average for each core is {average:.2} and was to be below {below}; end what \
             runs there, or expect wider intervals",
            opened.connection.host.name
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_hours_off_is_refused_with_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts.toml");
        let roles = "[\"target\", \"upstream\", \"generator\"]";
        std::fs::write(&file, format!("[hosts.a]\nroles = {roles}\naddress = \"192.0.2.1\"\n")).unwrap();
        let host = &file::read(&file).unwrap().0[0];
        assert_eq!(check_clock(host, 0.3), Ok(()));
        for (offset, wanted) in [(7200.0, "7200 s ahead"), (-90.0, "90 s behind")] {
            let said = check_clock(host, offset).unwrap_err().to_string();
            assert!(
                said.contains(&format!("hosts.toml:3: host a, address: its clock is {wanted}")),
                "{said}"
            );
            assert!(said.contains("timedatectl set-ntp true"), "{said}");
        }
    }
}
