//! Sessions over several machines: network namespaces with a real sshd each.
mod agreement;
mod generators;
mod network;

use network::{Network, Oddity, await_true};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

const PLAIN: Oddity = Oddity { environment: "", before: "" };
const MACHINES: [(&str, usize, &str); 3] =
    [("gateway", 11, "\"target\""), ("origin", 12, "\"upstream\""), ("load", 13, "\"generator\"")];
const NAMES: [&str; 3] = ["gateway", "origin", "load"];
/// What the agent changes on each machine.
const SETTINGS: &str = "sysctl -n net.ipv4.ip_local_port_range net.core.somaxconn";

fn network() -> Network {
    Network::new(&NAMES.map(|name| (name, PLAIN)))
}

/// A command of `weirlab` on the first machine of the network.
fn call(network: &Network, hosts: &Path, arguments: &[&str]) -> Command {
    let mut command = network.command("here", env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command.args(arguments).arg("--hosts").arg(hosts).arg("--out").arg(network.path("output"));
    command.env("TMPDIR", network.folder.path()).stdin(Stdio::null());
    command
}

/// A short `weirlab run`.
fn weirlab(network: &Network, hosts: &Path, arguments: &[&str]) -> Command {
    let usual = ["run", "kong/plain-1", "--scheme", "http", "--no-control"];
    let window: &[&str] = if arguments.contains(&"--duration") { &[] } else { &["--duration", "200ms"] };
    call(network, hosts, &[&usual, window, arguments].concat())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn data(network: &Network) -> Value {
    let folders: Vec<PathBuf> =
        fs::read_dir(network.path("output")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    serde_json::from_str(&fs::read_to_string(folders[0].join("data.json")).unwrap()).unwrap()
}

/// Waits until no machine has a process or a file of the laboratory any more.
fn await_clean(network: &Network) {
    for name in NAMES {
        let left = || network.processes(name);
        await_true(&format!("{name} has no process of the laboratory: {:?}", left()), || left().is_empty());
        let files = || fs::read_dir(network.temporary(name)).unwrap().count();
        await_true(&format!("{name} has no file of the laboratory"), || files() == 0);
    }
}

#[test]
fn a_run_over_three_machines_leaves_data_of_all_and_nothing_else() {
    let network = network();
    let before = NAMES.map(|name| network.output(name, SETTINGS));
    let hosts = network.hosts(&MACHINES, "");
    let weir = crate::session::weir();
    let arguments =
        ["--targets", "weir,nginx,floor,direct", "--rounds", "2", "--weir", weir.to_str().unwrap()];
    // What is named is copied, also where the PATH leads to it here.
    let path = format!("{}:{}", weir.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = weirlab(&network, &hosts, &arguments).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let data = data(&network);
    for cell in data["cells"].as_array().unwrap() {
        assert_eq!(cell["status"]["is"], "measured", "{cell}");
        assert_eq!(cell["blocks"].as_array().unwrap().len(), 2, "{}", cell["target"]);
        for block in cell["blocks"].as_array().unwrap() {
            assert!(block["good"].as_u64().unwrap() > 0, "{cell}");
            assert!(block["target"]["cpu_us"].as_f64().unwrap() > 0.0, "{cell}");
            assert!(block["upstream_cpu_us"].as_f64().unwrap() > 0.0, "{cell}");
        }
    }
    let manifest = &data["manifest"];
    assert_eq!(manifest["targets"]["nginx"]["driver"], "ssh");
    assert!(manifest["targets"]["weir"]["version"].as_str().unwrap().contains("weir"), "{manifest}");
    assert!(manifest["targets"]["nginx"]["version"].as_str().unwrap().contains("nginx"), "{manifest}");
    for (name, _, role) in MACHINES {
        let host = &manifest["hosts"][name];
        assert_eq!(format!("{}", host["roles"][0]), role, "{host}");
        assert!(
            host["cpus"].as_u64().unwrap() > 0 && host["round_trip_us"].as_f64().unwrap() > 0.0,
            "{host}"
        );
        // They are namespaces of one machine.
        assert!(host["clock_offset_us"].as_f64().unwrap().abs() < 1e6, "{host}");
        assert!(host["prepared"]["net.ipv4.ip_local_port_range"].as_str().unwrap().ends_with("10240 65535"));
        assert!(host["machine"]["net.ipv4.ip_local_port_range"] == "10240 65535", "{host}");
    }
    assert!(manifest["pinning"].as_str().unwrap().contains(" of gateway; upstream on "), "{manifest}");
    await_clean(&network);
    assert_eq!(NAMES.map(|name| network.output(name, SETTINGS)), before);
}

#[test]
fn a_run_over_a_network_that_delays_and_loses_packets_ends_well() {
    let network = Network::with_loss(&NAMES.map(|name| (name, PLAIN)), Some(0.01));
    let hosts = network.hosts(&MACHINES, "");
    let arguments = ["--targets", "nginx,direct", "--rounds", "2", "--duration", "1s"];
    let output = weirlab(&network, &hosts, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let data = data(&network);
    for cell in data["cells"].as_array().unwrap() {
        assert!(
            cell["blocks"].as_array().unwrap().iter().all(|block| block["good"].as_u64() > Some(0)),
            "{cell}"
        );
    }
    for name in NAMES {
        let round_trip = data["manifest"]["hosts"][name]["round_trip_us"].as_f64().unwrap();
        assert!(round_trip >= 2.0 * f64::from(network::DELAY_US), "{name}: {round_trip} us");
    }
    await_clean(&network);
}

#[test]
fn runs_on_two_machines_are_joined() {
    let network = network();
    let first = network.hosts(&MACHINES, "");
    let second = first.with_file_name("second.toml");
    fs::copy(&first, &second).unwrap();
    fs::write(
        network.path("prices.toml"),
        "currency = \"USD\"\nmachines.a.per_hour = 1\nmachines.b.per_hour = 2\n",
    )
    .unwrap();
    let machines = format!("a={},b={}", first.display(), second.display());
    let mut command = network.command("here", env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).env("TMPDIR", network.folder.path());
    command.args(["run", "kong/plain-1", "--scheme", "http", "--duration", "200ms", "--no-control"]);
    command.args(["--targets", "nginx", "--rounds", "2", "--machines", &machines, "--prices"]);
    command.arg(network.path("prices.toml")).arg("--out").arg(network.path("output")).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let folders = fs::read_dir(network.path("output")).unwrap();
    let joined: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(joined.len(), 3, "two runs and what joins them: {joined:?}");
    let joined = joined.iter().find(|path| path.to_string_lossy().ends_with("-machines")).unwrap();
    let text = fs::read_to_string(joined.join("join.json")).unwrap();
    let join: Value = serde_json::from_str(&text).unwrap();
    let cells = join["cases"][0]["cells"].as_array().unwrap();
    assert_eq!((&cells[0]["machine"], &cells[1]["machine"]), (&"a".into(), &"b".into()));
    assert!(said(&output).contains("USD per million requests"), "{}", said(&output));
    await_clean(&network);
    a_run_of_before_is_joined(&network, &first);
}

/// A run that was made before stands for its machine; only the other one is measured.
fn a_run_of_before_is_joined(network: &Network, hosts: &Path) {
    let runs = || fs::read_dir(network.path("output")).unwrap().map(|entry| entry.unwrap().path());
    let before: Vec<PathBuf> = runs().collect();
    let old = before.iter().find(|path| path.join("data.json").is_file()).unwrap();
    let machines = format!("old={},new={},mine=here", old.display(), hosts.display());
    let mut command = network.command("here", env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).env("TMPDIR", network.folder.path());
    command.args(["run", "kong/plain-1", "--scheme", "http", "--duration", "200ms", "--no-control"]);
    command.args(["--targets", "nginx", "--rounds", "3", "--machines", &machines]).stdin(Stdio::null());
    let output = command.arg("--out").arg(network.path("output")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let added: Vec<PathBuf> = runs().filter(|path| !before.contains(path)).collect();
    assert_eq!(added.len(), 3, "two runs and what joins all three: {added:?}");
    let joined = added.iter().find(|path| path.to_string_lossy().ends_with("-machines")).unwrap();
    let text = fs::read_to_string(joined.join("join.json")).unwrap();
    let join: Value = serde_json::from_str(&text).unwrap();
    let cells = join["cases"][0]["cells"].as_array().unwrap();
    let machines: Vec<&Value> = cells.iter().map(|cell| &cell["machine"]).collect();
    assert_eq!(machines, ["old", "new", "mine"]);
    await_clean(network);
}

/// A run that must fail before anything is measured: its text has all of `wanted`.
#[track_caller]
fn check_refused(network: &Network, hosts: &Path, arguments: &[&str], wanted: &[&str]) {
    let output = weirlab(network, hosts, arguments).args(["--targets", "nginx"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let text = said(&output).replace(&format!("{}/", network.folder.path().display()), "");
    for wanted in wanted {
        assert!(text.contains(wanted), "{wanted} is not in: {text}");
    }
    await_clean(network);
}

/// The hosts file with one change.
fn edited(network: &Network, from: &str, to: &str) -> PathBuf {
    let file = network.hosts(&MACHINES, "");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    fs::write(&file, text.replacen(from, to, 1)).unwrap();
    file
}

#[test]
fn a_host_that_cannot_be_used_is_named_with_its_line_and_the_fix() {
    let network = network();
    fs::write(network.path("stranger"), "").unwrap();
    let other = fs::read_to_string(network.path("other.pub")).unwrap();
    fs::write(network.path("changed"), format!("10.77.0.11 {other}")).unwrap();
    let cases = [
        (
            "\"user\"",
            "\"other\"",
            "9: host gateway, identity_file: the host accepts no key",
            "authorized_keys",
        ),
        (
            "\"known_hosts\"",
            "\"stranger\"",
            "7: host gateway, address: its host key is not known",
            "fingerprint",
        ),
        (
            "\"known_hosts\"",
            "\"changed\"",
            "7: host gateway, address: its host key is another",
            "ssh-keygen -R",
        ),
        ("user = \"root\"", "port = 2222", "8: host gateway, port: no sshd listens there", "start it"),
        (
            "user = \"root\"",
            "user = \"nil\"",
            "9: host gateway, identity_file: the host accepts no key",
            "name",
        ),
        (
            "ss = \"10.77.0.11\"\n\n",
            "ss = \"10.77.0.99\"\n\n",
            "11: host gateway, internal_address: ",
            "ip address",
        ),
        ("address = \"10.77.0.12\"", "address = \"10.77.0.88\"", "15: host origin, address: ", "network"),
    ];
    for (from, to, wanted, fix) in cases {
        check_refused(&network, &edited(&network, from, to), &[], &[&format!("hosts.toml:{wanted}"), fix]);
    }
    let too_few = ["hosts.toml:6: host gateway, roles: it has ", " CPUs for 9999 workers", "lower --workers"];
    check_refused(&network, &network.hosts(&MACHINES, ""), &["--workers", "9999"], &too_few);
}

#[test]
fn another_architecture_and_a_full_disk_are_seen_before_anything_is_started() {
    let foreign = Oddity {
        before: "echo 'echo riscv128' > $F/uname && chmod 755 $F/uname && mount --bind $F/uname /usr/bin/uname",
        ..PLAIN
    };
    let full = Oddity {
        environment: "XDG_CACHE_HOME=$F/full",
        before: "mkdir $F/full && mount -t tmpfs -o size=1m tmpfs $F/full",
    };
    let small = Oddity { before: "mount -t tmpfs -o size=12k tmpfs $F/tmp-gateway", ..PLAIN };
    let network = Network::new(&[("gateway", small), ("origin", foreign), ("load", full)]);
    let all = "\"target\", \"upstream\", \"generator\"";
    let hosts = network.hosts(&[("origin", 12, all)], "");
    let wanted =
        ["hosts.toml:7: host origin, weirlab: it is of the architecture riscv128", "build weirlab for it"];
    check_refused(&network, &hosts, &[], &wanted);
    let hosts = network.hosts(&[("load", 13, all)], "");
    let wanted = ["hosts.toml:7: host load, address: copying ", "its disk is full", "make room there"];
    check_refused(&network, &hosts, &[], &wanted);
    let hosts = network.hosts(&[("gateway", 11, all)], "");
    let wanted = ["on host gateway: cannot write its files into ", "No space left", "make room there"];
    check_refused(&network, &hosts, &[], &wanted);
}

#[test]
fn stacks_are_sampled_on_the_machine_of_the_target_where_perf_must_be() {
    let lacking = Oddity {
        before: "printf '#!/bin/sh\\necho linux-perf is not installed >&2; exit 2' > $F/perf && chmod 755 $F/perf \
                 && mount --bind $F/perf /usr/bin/perf",
        ..PLAIN
    };
    let network = Network::new(&[("gateway", PLAIN), ("origin", lacking), ("load", PLAIN)]);
    let flame = ["flame", "kong/plain-1", "--targets", "nginx", "--duration", "500ms"];
    let all = "\"target\", \"upstream\", \"generator\"";
    let output = call(&network, &network.hosts(&[("origin", 12, all)], ""), &flame).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("on host origin: perf is not installed"), "{}", said(&output));
    await_clean(&network);
    fs::remove_dir_all(network.path("output")).unwrap();
    let output = call(&network, &network.hosts(&MACHINES, ""), &flame).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let folder = fs::read_dir(network.path("output")).unwrap().next().unwrap().unwrap().path();
    let stacks = fs::read_to_string(folder.join("flame-nginx.folded")).unwrap();
    assert!(stacks.starts_with("nginx;"), "{stacks}");
    await_clean(&network);
}

#[test]
fn a_machine_that_vanishes_is_named_and_ends_what_runs_there_by_itself() {
    let network = network();
    let hosts = network.hosts(&MACHINES, "");
    let mut session = weirlab(&network, &hosts, &["--targets", "nginx", "--rounds", "1000"]);
    let session = session.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let measured = || !of(network.processes("gateway"), "nginx").is_empty();
    await_true("the target runs", measured);
    // Neither side hears that the other is gone.
    network.output("gateway", "ip link set eth0 down");
    let output = session.wait_with_output().unwrap();
    let text = said(&output);
    assert!(
        text.contains("hosts.toml:7: host gateway, address 10.77.0.11: the connection was lost"),
        "{text}"
    );
    await_true("the machine has no agent", || of(network.processes("gateway"), "agent").is_empty());
    network.output("gateway", "ip link set eth0 up");
    let sshd = of(network.processes("gateway"), "sshd");
    // Its sshd waits for as long as TCP does.
    sshd.iter().for_each(|pid| drop(Command::new("kill").arg(pid.to_string()).status()));
    await_clean(&network);
}

#[test]
fn killing_a_connection_at_any_moment_leaves_nothing_behind() {
    let network = network();
    let before = NAMES.map(|name| network.output(name, SETTINGS));
    let hosts = network.hosts(&MACHINES, "");
    let mut random = fastrand::Rng::with_seed(20);
    let mut reached = 0;
    for round in 0..20 {
        let mut session = weirlab(&network, &hosts, &["--targets", "nginx,floor", "--rounds", "1000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(random.u64(100..4_000)));
        reached += usize::from(!network.processes("gateway").is_empty());
        kill(&network, &session, round);
        await_true(&format!("the session of round {round} ends"), || session.try_wait().unwrap().is_some());
        await_clean(&network);
        assert_eq!(NAMES.map(|name| network.output(name, SETTINGS)), before, "round {round}");
    }
    assert!(reached > 10, "{reached} of 20 sessions had begun");
}

/// Ends a part of the connection to a machine, by force: which one depends on the round.
fn kill(network: &Network, session: &Child, round: usize) {
    let name = NAMES[round / 4 % 3];
    let victims: Vec<u32> = match round % 4 {
        0 => of(network.processes("here"), "ssh "),
        1 => of(network.processes(name), "sshd"),
        2 => of(network.processes(name), "agent"),
        _ => vec![session.id()],
    };
    // Before the connection is there, the session itself is what can be killed.
    let victims = if victims.is_empty() { vec![session.id()] } else { victims };
    // One that has ended meanwhile is as good as killed.
    for pid in victims {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
    }
}

fn of(processes: Vec<(u32, String)>, word: &str) -> Vec<u32> {
    processes.into_iter().filter(|(_, line)| line.contains(word)).map(|(pid, _)| pid).collect()
}
